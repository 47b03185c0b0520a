// SPDX-License-Identifier: Apache-2.0
// gemm.h: C = A B (or C += A B) for row-major matrices: the workhorse of linear layers and of every
// convolution that is written as a matrix product.
//
//   C[i,j] = sum over k of op(A)[i,k] op(B)[k,j],   op(A) is M x K, op(B) is K x N, C is M x N
//
// Choices, same arguments:
//   gemm         our own register-tiled product (gemm_simd.cpp), chosen by instruction set at run
//                time; several threads, same bits with any number of threads.
//   gemm_eigen   Eigen's product, one thread. A choice for teaching and comparison: this library is
//                built for baseline x86-64 and so Eigen gets SSE2 only, whatever the CPU offers.
#pragma once

#include <cstdint>

#include "framework/export.h"

namespace convscope {

// lda, ldb, ldc: elements between rows as they lie in memory. `transpose_a` says that a holds
// op(A) transposed, K x M; `transpose_b` that b holds op(B) transposed, N x K. K = 0 gives zeros
// (or leaves C alone when it accumulates). C may not overlap A or B.
CONVSCOPE_API void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n,
                        std::int64_t k, const float* a, std::int64_t lda, const float* b,
                        std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate);

// Double precision: plain loops, for gradient checks.
CONVSCOPE_API void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n,
                        std::int64_t k, const double* a, std::int64_t lda, const double* b,
                        std::int64_t ldb, double* c, std::int64_t ldc, bool accumulate);

CONVSCOPE_API void gemm_eigen(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n,
                              std::int64_t k, const float* a, std::int64_t lda, const float* b,
                              std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate);

}  // namespace convscope
