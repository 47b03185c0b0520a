// SPDX-License-Identifier: Apache-2.0
// blas.cuh: cuBLAS for row-major matrices: C[i] = alpha op(A[i]) op(B[i]) + beta C[i], i < batch.
#pragma once

#include <cstdint>

#include "framework/precision.h"

namespace convscope {

struct BlasGemm {
  std::int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;  // op(A) is m x k; row-major [m][k], or [k][m] when transpose_a
  const void* b = nullptr;  // op(B) is k x n; row-major [k][n], or [n][k] when transpose_b
  void* c = nullptr;        // row-major [m][n]
  std::int64_t lda = 0, ldb = 0, ldc = 0;  // elements between rows in memory
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::f32;    // of A and B: f32, f64, f16, bf16
  DType dtype_c = DType::f32;  // of C: the same, or f32 for fp16/bf16 operands
  double alpha = 1, beta = 0;  // beta = 0: C is not read, so it may hold NaN
  MathMode math = MathMode::f32;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // elements from one matrix to the next
};

// Queues the product on cuda_stream(). With K = 0, it scales C by beta. The call may be captured
// into a graph, because cuBLAS uses a fixed workspace.
void blas_gemm(const BlasGemm& gemm);

// Computes the same product for complex f32 (pairs re, im) with real alpha and beta. conjugate_a
// and conjugate_b conjugate op(A) and op(B).
struct BlasComplexGemm {
  std::int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  std::int64_t lda = 0, ldb = 0, ldc = 0;  // complex elements
  bool transpose_a = false, transpose_b = false;
  bool conjugate_a = false, conjugate_b = false;  // only together with transpose_
  double alpha = 1, beta = 0;
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};
void blas_gemm(const BlasComplexGemm& gemm);

}  // namespace convscope
