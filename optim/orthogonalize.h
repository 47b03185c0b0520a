// SPDX-License-Identifier: Apache-2.0
// orthogonalize.h: replaces the singular values of a matrix by values near 1, for Muon
// (framework/ops/update_rules/muon.h).
//
//   X = u / max(|u|, 1e-7)                                    |u|: the Frobenius norm
//   5 times:  A = X X',  X = a X + (b A + c A A) X            a = 3.4445, b = -4.775, c = 2.0315
//
// X [r, c] is U S V' of the singular value decomposition of u, with S between about 0.7 and 1.2. A
// matrix with more rows than columns uses A = X' X and X = a X + X (b A + c A A). All products are
// those of linear layers (framework/ops/gemm/matmul.h), so they may be recorded, and the bits do
// not depend on threads.
// Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".
#pragma once

#include <cstdint>
#include <vector>

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// The arguments of x = u / max(|u|, epsilon), u = dw + look_ahead * (m - dw), for `count` elements
// of type `dtype`.
struct DirectionArguments {
  DType dtype = DType::f32;
  std::int64_t count = 0;
  const void* dw = nullptr;
  const void* m = nullptr;
  void* x = nullptr;
  double look_ahead = 0;
  double epsilon = 1e-7;
};
extern CONVSCOPE_API KernelSlot<void(Device, const DirectionArguments&)> direction_kernel;

// Computes directions of matrices. The matrices of an optimiser share its scratch memory.
class CONVSCOPE_API Orthogonalizer {
 public:
  // Adds a matrix with momentum `m`. `direction` receives the result; both have the shape of the
  // weight, whose first axis is that of the rows.
  void add(const Tensor& m, const Tensor& direction);
  // Computes the direction of matrix `index` from its gradient at `dw`. Allocates nothing after the
  // first call.
  void run(std::size_t index, const void* dw, double look_ahead);

 private:
  struct Matrix {
    Tensor m, direction;             // [rows, columns]
    Tensor x, gram, square, scaled;  // views of the scratch memory; undefined before run()
  };
  void lay_out();
  std::vector<Matrix> matrices_;
  bool is_laid_out_ = false;
};

}  // namespace convscope
