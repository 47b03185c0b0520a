// SPDX-License-Identifier: Apache-2.0
// matmul.h: products of matrices. f32 uses the project's register-tiled product
// (framework/ops/gemm/gemm.h) or, if the caller names it, Eigen's product; f64 is for gradient
// checks.
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"
#include "framework/precision.h"

namespace convscope {

enum class Transpose : bool { no, yes };
enum class MatmulEngine { tiled, eigen };

// Returns op(a) op(b) with op(a) [M,K], op(b) [K,N] -> [M,N].
CONVSCOPE_API Variable matmul(const Variable& a, const Variable& b,
                              Transpose transpose_a = Transpose::no,
                              Transpose transpose_b = Transpose::no,
                              MatmulEngine engine = MatmulEngine::tiled);
CONVSCOPE_API Tensor matmul(const Tensor& a, const Tensor& b, Transpose transpose_a = Transpose::no,
                            Transpose transpose_b = Transpose::no,
                            MatmulEngine engine = MatmulEngine::tiled);

// The arguments of c = op(a) op(b), or c += op(a) op(b) with `accumulate`. Shapes must match. a and
// b have the same type. c has that type, or f32 if a and b are fp16/bf16. framework/precision.h
// explains `tf32`.
struct MatmulArguments {
  Tensor a, b, c;
  Transpose transpose_a = Transpose::no;
  Transpose transpose_b = Transpose::no;
  bool accumulate = false;
  MatmulEngine engine = MatmulEngine::tiled;
  bool tf32 = false;
};
extern CONVSCOPE_API KernelSlot<void(const MatmulArguments&)> matmul_kernel;
// Sets every row of y [N,O] to b [O].
extern CONVSCOPE_API KernelSlot<void(const Tensor& b, const Tensor& y)> fill_rows_kernel;

}  // namespace convscope
