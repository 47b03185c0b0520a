// SPDX-License-Identifier: Apache-2.0
// matmul_cpu.cpp: matrix products on the CPU. f64 uses Eigen, f32 the project's kernels or Eigen.
#include "framework/ops/gemm/gemm.h"
#include "framework/ops/gemm/matmul.h"

namespace convscope {
namespace {

struct MatmulShape {
  std::int64_t m, n, k, lda, ldb;
};

MatmulShape sizes_of(const MatmulArguments& arguments) {
  const Shape& a = arguments.a.shape();
  const Shape& b = arguments.b.shape();
  return {.m = arguments.c.shape()[0],
          .n = arguments.c.shape()[1],
          .k = arguments.transpose_a == Transpose::yes ? a[0] : a[1],
          .lda = a[1],
          .ldb = b[1]};
}

void matmul_cpu(const MatmulArguments& arguments) {
  const auto [m, n, k, lda, ldb] = sizes_of(arguments);
  if (m == 0 || n == 0) return;
  const bool ta = arguments.transpose_a == Transpose::yes;
  const bool tb = arguments.transpose_b == Transpose::yes;
  if (arguments.c.dtype() == DType::f64) {
    gemm(ta, tb, m, n, k, arguments.a.data<double>(), lda, arguments.b.data<double>(), ldb,
         arguments.c.data<double>(), n, arguments.accumulate);
    return;
  }
  const auto product = arguments.engine == MatmulEngine::eigen
                           ? gemm_eigen
                           : static_cast<decltype(&gemm_eigen)>(gemm);
  product(ta, tb, m, n, k, arguments.a.data<float>(), lda, arguments.b.data<float>(), ldb,
          arguments.c.data<float>(), n, arguments.accumulate);
}

// Sets every row of y to b.
template <class T>
void fill_rows(const Tensor& b, const Tensor& y) {
  const T* const from = b.data<T>();
  T* const to = y.data<T>();
  const std::int64_t width = b.numel();
  for (std::int64_t i = 0; i < y.shape()[0]; ++i) {
    for (std::int64_t j = 0; j < width; ++j) to[i * width + j] = from[j];
  }
}

void fill_rows_cpu(const Tensor& b, const Tensor& y) {
  if (y.dtype() == DType::f64) return fill_rows<double>(b, y);
  fill_rows<float>(b, y);
}

}  // namespace
CONVSCOPE_KERNEL(matmul_kernel, cpu, matmul_cpu)
CONVSCOPE_KERNEL(fill_rows_kernel, cpu, fill_rows_cpu)
}  // namespace convscope
