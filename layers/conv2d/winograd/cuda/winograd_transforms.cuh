// SPDX-License-Identifier: Apache-2.0
// winograd_transforms.cuh: products with the matrices of winograd_matrices.h, in registers.
//
// All loops have constant bounds and all coefficients are known to the compiler, so the compiler
// omits zeros and does not multiply by 1. Rows 2 i - 1 and 2 i of a matrix differ only in the sign
// of the odd columns. So sums over even and over odd columns are computed once, then added and
// subtracted.
// Read next  winograd_matrices.h; winograd_kernels.cuh
#pragma once

#include "framework/cuda/runtime.cuh"
#include "layers/conv2d/winograd/winograd_matrices.h"

namespace convscope::winograd {

template <int ROWS, int COLUMNS>
struct Coefficients {
  float at[ROWS][COLUMNS];
};
template <int ROWS, int COLUMNS>
__host__ __device__ constexpr Coefficients<ROWS, COLUMNS> coefficients(
    const float (&from)[ROWS][COLUMNS]) {
  Coefficients<ROWS, COLUMNS> out{};
  for (int i = 0; i < ROWS; ++i) {
    for (int j = 0; j < COLUMNS; ++j) out.at[i][j] = from[i][j];
  }
  return out;
}

// Selects a matrix of F(M, 3): each has T = M + 2 rows.
template <int M>
struct MatrixA {
  static constexpr int kColumns = M;
  static constexpr auto values() { return coefficients(Matrices<M>::kA); }
};
template <int M>
struct MatrixB {
  static constexpr int kColumns = M + 2;
  static constexpr auto values() { return coefficients(Matrices<M>::kBt); }
};
template <int M>
struct MatrixG {
  static constexpr int kColumns = 3;
  static constexpr auto values() { return coefficients(Matrices<M>::kG); }
};

__device__ inline float fused(float coefficient, float value, float sum) {
  return coefficient == 0.0f ? sum : sum + coefficient * value;
}

// Computes out = matrix * in. Elements of `in` and `out` are IN_STEP and OUT_STEP apart.
template <int T, class Matrix, int IN_STEP, int OUT_STEP>
__device__ inline void multiply(const float* in, float* out) {
  constexpr int kColumns = Matrix::kColumns;
  constexpr auto kMatrix = Matrix::values();
  float result[T];
  const auto half = [&](int row, int first) {
    float sum = 0;
#pragma unroll
    for (int j = first; j < kColumns; j += 2) sum = fused(kMatrix.at[row][j], in[j * IN_STEP], sum);
    return sum;
  };
  result[0] = half(0, 0) + half(0, 1);
#pragma unroll
  for (int i = 1; i < T - 1; i += 2) {
    const float even = half(i, 0);
    const float odd = half(i, 1);
    result[i] = even + odd;
    result[i + 1] = even - odd;
  }
  result[T - 1] = half(T - 1, 0) + half(T - 1, 1);
#pragma unroll
  for (int i = 0; i < T; ++i) out[i * OUT_STEP] = result[i];
}

// Computes out = matrix^T * in.
template <int T, class Matrix, int IN_STEP, int OUT_STEP>
__device__ inline void multiply_transposed(const float* in, float* out) {
  constexpr int kColumns = Matrix::kColumns;
  constexpr auto kMatrix = Matrix::values();
  constexpr int kPairs = (T - 2) / 2;
  float sum[kPairs];
  float difference[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    sum[i] = in[(2 * i + 1) * IN_STEP] + in[(2 * i + 2) * IN_STEP];
    difference[i] = in[(2 * i + 1) * IN_STEP] - in[(2 * i + 2) * IN_STEP];
  }
  float result[kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    float value = 0;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      value = fused(kMatrix.at[2 * i + 1][j], j % 2 == 0 ? sum[i] : difference[i], value);
    }
    value = fused(kMatrix.at[0][j], in[0], value);
    result[j] = fused(kMatrix.at[T - 1][j], in[(T - 1) * IN_STEP], value);
  }
#pragma unroll
  for (int j = 0; j < kColumns; ++j) out[j * OUT_STEP] = result[j];
}

// Computes out [T][T] = matrix * in [COLUMNS][COLUMNS] * matrix^T; `out` may be `in` if it is T x
// T.
template <int T, class Matrix>
__device__ inline void transform(const float* in, float* out) {
  constexpr int kColumns = Matrix::kColumns;
  float half[T * kColumns];
#pragma unroll
  for (int j = 0; j < kColumns; ++j) multiply<T, Matrix, kColumns, kColumns>(in + j, half + j);
#pragma unroll
  for (int i = 0; i < T; ++i) multiply<T, Matrix, 1, 1>(half + i * kColumns, out + i * T);
}

// Computes out [COLUMNS][COLUMNS] = matrix^T * in [T][T] * matrix.
template <int T, class Matrix>
__device__ inline void transform_back(const float* in, float* out) {
  constexpr int kColumns = Matrix::kColumns;
  float half[kColumns * T];
#pragma unroll
  for (int j = 0; j < T; ++j) multiply_transposed<T, Matrix, T, T>(in + j, half + j);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    multiply_transposed<T, Matrix, 1, 1>(half + i * T, out + i * kColumns);
  }
}

}  // namespace convscope::winograd
