// SPDX-License-Identifier: Apache-2.0
// gemm.h: C = A B (or C += A B) for row-major matrices: used by linear layers and by every
// convolution that is implemented as a matrix product.
//
//   C[i,j] = sum over k of op(A)[i,k] op(B)[k,j],   op(A) is M x K, op(B) is K x N, C is M x N
//
// Implementations, same arguments:
//   gemm         register-tiled product (gemm_simd.cpp); the instruction set is chosen at run time.
//                Several threads; the bits are the same with any number of threads.
//   gemm_eigen   Eigen's product on one thread, for teaching and comparison. This library is built
//                for baseline x86-64, so Eigen uses only SSE2, whatever the CPU supports.
#pragma once

#include <cstdint>

#include "framework/export.h"

namespace convscope {

// Computes the product. lda, ldb and ldc are the numbers of elements between rows in memory. With
// `transpose_a`, a holds the transpose of op(A), of shape K x M. With `transpose_b`, b holds the
// transpose of op(B), of shape N x K. If K is 0, the product is zero. C must not overlap A or B.
CONVSCOPE_API void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n,
                        std::int64_t k, const float* a, std::int64_t lda, const float* b,
                        std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate);

// Computes the product in double with plain loops, for gradient checks.
CONVSCOPE_API void gemm(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n,
                        std::int64_t k, const double* a, std::int64_t lda, const double* b,
                        std::int64_t ldb, double* c, std::int64_t ldc, bool accumulate);

CONVSCOPE_API void gemm_eigen(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n,
                              std::int64_t k, const float* a, std::int64_t lda, const float* b,
                              std::int64_t ldb, float* c, std::int64_t ldc, bool accumulate);

}  // namespace convscope
