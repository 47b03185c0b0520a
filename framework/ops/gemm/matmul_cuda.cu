// SPDX-License-Identifier: Apache-2.0
// matmul_cuda.cu: matrix products by cuBLAS: true f32 (TF32 only on request), f64, and fp16/bf16
// operands with f32 accumulation.
#include "framework/cuda/blas.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/ops/gemm/matmul.h"

namespace convscope {
namespace {

void matmul_cuda(const MatmulArguments& arguments) {
  const Shape& a = arguments.a.shape();
  const Shape& b = arguments.b.shape();
  const bool ta = arguments.transpose_a == Transpose::yes;
  blas_gemm(BlasGemm{.m = arguments.c.shape()[0],
                     .n = arguments.c.shape()[1],
                     .k = ta ? a[0] : a[1],
                     .a = arguments.a.raw_data(),
                     .b = arguments.b.raw_data(),
                     .c = arguments.c.raw_data(),
                     .lda = a[1],
                     .ldb = b[1],
                     .ldc = arguments.c.shape()[1],
                     .transpose_a = ta,
                     .transpose_b = arguments.transpose_b == Transpose::yes,
                     .dtype = arguments.a.dtype(),
                     .dtype_c = arguments.c.dtype(),
                     .beta = arguments.accumulate ? 1.0 : 0.0,
                     .math = arguments.tf32 ? MathMode::tf32 : MathMode::f32});
}

template <class T>
__global__ void fill_rows(const T* b, T* y, std::int64_t rows, unsigned width) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (unsigned j = threadIdx.x; j < width; j += blockDim.x) y[row * width + j] = b[j];
  }
}

template <class T>
void fill_rows_typed(const Tensor& b, const Tensor& y) {
  const std::int64_t rows = y.shape()[0];
  const auto width = static_cast<unsigned>(b.numel());
  if (width == 0) return;
  const unsigned threads = width < 256 ? (width + 31) / 32 * 32 : 256;
  LaunchShape shape = grid_for(rows, 1);
  shape.block = dim3(threads);
  launch(fill_rows<T>, shape, b.data<T>(), y.data<T>(), rows, width);
}

void fill_rows_cuda(const Tensor& b, const Tensor& y) {
  if (y.dtype() == DType::f64) return fill_rows_typed<double>(b, y);
  fill_rows_typed<float>(b, y);
}

}  // namespace
CONVSCOPE_KERNEL(matmul_kernel, cuda, matmul_cuda)
CONVSCOPE_KERNEL(fill_rows_kernel, cuda, fill_rows_cuda)
}  // namespace convscope
