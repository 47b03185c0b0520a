// SPDX-License-Identifier: Apache-2.0
// orthogonalize.cpp: replaces the singular values of a matrix by values near 1, for Muon.
#include "optim/orthogonalize.h"

#include <algorithm>
#include <cmath>

#include "framework/ops/elementwise.h"
#include "framework/ops/gemm/matmul.h"

namespace convscope {

constinit KernelSlot<void(Device, const DirectionArguments&)> direction_kernel{"muon"};

namespace {

constexpr int kSteps = 5;  // odd, so that the last result is in Matrix::direction
constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;

Tensor as_matrix(const Tensor& w) { return w.reshape({w.dim(0), w.numel() / w.dim(0)}); }

void scale(double factor, const Tensor& x, const Tensor& y) {
  scale_kernel.get(x.device())(factor, x, y);
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& c, bool accumulate,
              Transpose transpose_a = Transpose::no, Transpose transpose_b = Transpose::no) {
  matmul_kernel.get(a.device())({.a = a,
                                 .b = b,
                                 .c = c,
                                 .transpose_a = transpose_a,
                                 .transpose_b = transpose_b,
                                 .accumulate = accumulate});
}

template <class T>
void direction(const DirectionArguments& a) {
  const T* const dw = static_cast<const T*>(a.dw);
  const T* const m = static_cast<const T*>(a.m);
  T* const x = static_cast<T*>(a.x);
  const T q = static_cast<T>(a.look_ahead);
  double sum = 0;
  for (std::int64_t i = 0; i < a.count; ++i) {
    x[i] = dw[i] + q * (m[i] - dw[i]);
    const auto value = static_cast<double>(x[i]);
    sum += value * value;
  }
  const T factor = static_cast<T>(1 / std::max(std::sqrt(sum), a.epsilon));
  for (std::int64_t i = 0; i < a.count; ++i) x[i] *= factor;
}

void direction_cpu(Device, const DirectionArguments& a) {
  a.dtype == DType::f64 ? direction<double>(a) : direction<float>(a);
}

}  // namespace

void Orthogonalizer::add(const Tensor& m, const Tensor& direction) {
  matrices_.push_back({.m = as_matrix(m),
                       .direction = as_matrix(direction),
                       .x = {},
                       .gram = {},
                       .square = {},
                       .scaled = {}});
  is_laid_out_ = false;
}

void Orthogonalizer::lay_out() {
  is_laid_out_ = true;
  std::int64_t elements = 0;
  std::int64_t gram = 0;
  for (const Matrix& matrix : matrices_) {
    const std::int64_t side = std::min(matrix.m.dim(0), matrix.m.dim(1));
    elements = std::max(elements, matrix.m.numel());
    gram = std::max(gram, side * side);
  }
  const Tensor& like = matrices_.front().m;
  const auto scratch = [&](std::int64_t count) {
    return Tensor::empty({count}, like.dtype(), like.device());
  };
  const Tensor all[] = {scratch(elements), scratch(gram), scratch(gram), scratch(gram)};
  for (Matrix& matrix : matrices_) {
    const std::int64_t side = std::min(matrix.m.dim(0), matrix.m.dim(1));
    matrix.x = all[0].slice_rows(0, matrix.m.numel()).reshape(matrix.m.shape());
    Tensor* const squares[] = {&matrix.gram, &matrix.square, &matrix.scaled};
    for (int i = 0; i < 3; ++i) {
      *squares[i] = all[i + 1].slice_rows(0, side * side).reshape({side, side});
    }
  }
}

void Orthogonalizer::run(std::size_t index, const void* dw, double look_ahead) {
  if (!is_laid_out_) lay_out();
  Matrix& matrix = matrices_[index];
  const bool is_tall = matrix.m.dim(0) > matrix.m.dim(1);
  direction_kernel.get(matrix.m.device())(matrix.m.device(), {.dtype = matrix.m.dtype(),
                                                              .count = matrix.m.numel(),
                                                              .dw = dw,
                                                              .m = matrix.m.raw_data(),
                                                              .x = matrix.x.raw_data(),
                                                              .look_ahead = look_ahead});
  const Tensor* x = &matrix.x;
  const Tensor* next = &matrix.direction;
  for (int step = 0; step < kSteps; ++step) {
    // gram = A, square = b A + c A A
    multiply(*x, *x, matrix.gram, false, is_tall ? Transpose::yes : Transpose::no,
             is_tall ? Transpose::no : Transpose::yes);
    scale(kC, matrix.gram, matrix.scaled);
    scale(kB, matrix.gram, matrix.square);
    multiply(matrix.scaled, matrix.gram, matrix.square, true);
    scale(kA, *x, *next);
    is_tall ? multiply(*x, matrix.square, *next, true) : multiply(matrix.square, *x, *next, true);
    std::swap(x, next);
  }
}

CONVSCOPE_KERNEL(direction_kernel, cpu, direction_cpu)

}  // namespace convscope
