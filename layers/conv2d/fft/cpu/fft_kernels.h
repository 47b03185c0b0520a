// SPDX-License-Identifier: Apache-2.0
// fft_kernels.h: Fourier transforms of short rows and columns with channels in the lanes, compiled
// for each instruction set.
//
// L is the number of lanes, T the length of a transform. The spectrum of a real row has T / 2 pairs
// [2, L]. Pair j > 0 is the complex bin j; pair 0 holds bins 0 and T / 2, which are real. So the
// pairs 0 of all rows of a tile are two real columns. They are transformed as one complex column,
// with `two_real` set.
//
// A complex product takes three real ones (Gauss). For a + ib of the data and c + id of a kernel:
//   m0 = (a + b) c,  m1 = a (d - c),  m2 = b (c + d):   real part m0 - m2, imaginary part m0 + m1.
// Therefore row i of a transformed column of data is stored as three points from 3 i on: a + b, a
// and b. A row of a transformed kernel or product is stored as two points from 2 i on: the real and
// the imaginary part. If the column combines two real columns A and B, then for 0 < i < T/2 row i
// holds row i of A, and row T - i holds row i of B. Rows 0 and T/2 are real: the first point
// belongs to A and the second to B.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Transforms real rows. Row i is read at from + i * from_row, and its spectrum is written as pairs:
// pair j goes to the address to + j * pair_step + 2 i L.
struct FftRows {
  int rows = 0, columns = 0;  // further columns are 0, up to T
  const float* from = nullptr;
  std::int64_t from_row = 0;
  float scale = 1;
  float* to = nullptr;
  std::int64_t pair_step = 0;
};

// Computes the inverse of FftRows. Columns [first, first + columns) of real row i are written from
// the address to + i * to_row on.
struct FftRowsBack {
  int rows = 0, first = 0, columns = 0;
  const float* from = nullptr;
  std::int64_t pair_step = 0;
  float* to = nullptr;
  std::int64_t to_row = 0;
  const float* bias = nullptr;  // `lanes` elements to add, or null
  int lanes = 0;
  bool accumulate = false;  // whether the result is added to the output
};

// Transforms `count` columns. A column has `rows` complex numbers, from_step apart; further rows up
// to T are 0. The result has 3 T points for data and 2 T points for kernels.
struct FftColumns {
  int rows = 0;
  bool two_real = false;
  bool conjugate = false;  // whether the result is conjugated
  std::int64_t count = 0;
  const float* from = nullptr;
  std::int64_t from_step = 0;
  float* to = nullptr;
  std::int64_t to_step = 0, point_step = 0;
};

// Computes the inverse of FftColumns and keeps rows [first, first + rows) of each column.
struct FftColumnsBack {
  int first = 0, rows = 0;
  bool two_real = false;
  bool accumulate = false;  // whether the result is added to the output
  std::int64_t count = 0;
  const float* from = nullptr;
  std::int64_t from_step = 0, point_step = 0;
  float* to = nullptr;
  std::int64_t to_step = 0;
};

// The transforms of one length. They do not divide by T: a transform followed by its inverse
// multiplies rows by 2 T and columns by T.
struct FftLength {
  int length = 0;  // T
  void (*rows)(const FftRows& z) = nullptr;
  void (*rows_back)(const FftRowsBack& z) = nullptr;
  void (*data_columns)(const FftColumns& z) = nullptr;
  void (*kernel_columns)(const FftColumns& z) = nullptr;
  void (*columns_back)(const FftColumnsBack& z) = nullptr;
};

// Arguments of the products of one row of columns, summed over channels: for i < rows
//   (re, im)[i L + lane] = sum over c < depth of v[c, i] (u[c L + lane], u[c L + lane + u_point]).
// Point s < 3 of v[c, i] is at v + s * v_point + c / L * block_step + i L + c % L. The real parts
// are written to `out`, and the imaginary parts to out + out_point.
struct FftProduct {
  int rows = 0;
  std::int64_t depth = 0;
  const float* v = nullptr;
  std::int64_t v_point = 0, block_step = 0;
  const float* u = nullptr;
  std::int64_t u_point = 0;
  float* out = nullptr;
  std::int64_t out_point = 0;
};

inline constexpr int kFftLengths[] = {12, 16, 20, 24, 32, 48, 64};
inline constexpr int kFftLengthCount = 7;

// Products without a sum, of columns in the layout of kernels: out[2 T, L] = v[2 T, L] u[2 T, L],
// or out += that product.
struct FftPoints {
  int length = 0;  // T
  bool two_real = false;
  bool accumulate = false;
  const float* v = nullptr;
  const float* u = nullptr;
  float* out = nullptr;  // may be v
};

struct FftKernels {
  FftLength lengths[kFftLengthCount];
  int rows = 0;      // maximum number of tiles of a product
  int sum_rows = 0;  // channels that are summed at once; divides L
  void (*product)(const FftProduct& z) = nullptr;
  // As product(), but for i < sum_rows sums over t < `depth` of v[t L + i] (u[t L + lane], ..).
  void (*sum)(const FftProduct& z) = nullptr;
  void (*points)(const FftPoints& z) = nullptr;
};

CONVSCOPE_API extern IsaTable<FftKernels> fft_kernels;

}  // namespace convscope
