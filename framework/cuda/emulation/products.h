// SPDX-License-Identifier: Apache-2.0
// products.h: the factors of emulated tensor-core products, and their sums.
#pragma once

#include <cstdint>

#include "framework/dtype.h"
#include "framework/int_math.h"

namespace emulation {

// Columns are multiplied in vectors of so many.
inline constexpr int kColumnsAtOnce = 16;

// At most so many numbers are decoded at a time: 256 lines of 64 depths.
inline constexpr int kMostNumbers = 256 * 64;

// kLines rows of A or columns of B, kDepths numbers of each. Lines behind the last are zeros.
template <int kLines, int kDepths>
struct Factor {
  static constexpr int kStride = convscope::round_up(kLines, kColumnsAtOnce);
  alignas(64) float numbers[kDepths][kStride] = {};
  bool finite = true;  // all numbers of all lines: times zero they are zero

  // Shared memory holds numbers in pieces of 16 bytes: several depths of a line, or, kOuter,
  // several lines of a depth. place(line, depth) is where the piece begins whose first number
  // that is.
  template <class Number, bool kOuter, class Place>
  void fill(const Place& place);
};

// Each piece becomes a column of `numbers`, or, `outer`, a part of a row. Rows are `stride` numbers
// apart. Whether all are finite.
bool decode(convscope::DType dtype, bool outer, const unsigned char* const* pieces, int lines,
            int depths, float* numbers, int stride);

// sums[row][column] of rows `row` to row + 15 of A, without what is added to them. A sum has eight
// parts, as vectors of the compiler would; so the bits are the same on each machine.
void multiply(const float* a, int a_stride, bool a_finite, int row, const float* b, int b_stride,
              bool b_finite, int depths, float* sums);

template <int kLines, int kDepths>
template <class Number, bool kOuter, class Place>
void Factor<kLines, kDepths>::fill(const Place& place) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(Number));
  constexpr int kLineStep = kOuter ? kPiece : 1, kDepthStep = kOuter ? 1 : kPiece;
  static_assert(kLines % kLineStep == 0 && kDepths % kDepthStep == 0);
  static_assert(kLines * kDepths <= kMostNumbers);
  const unsigned char* pieces[kLines * kDepths / kPiece];
  int count = 0;
  for (int depth = 0; depth < kDepths; depth += kDepthStep) {
    for (int line = 0; line < kLines; line += kLineStep) pieces[count++] = place(line, depth);
  }
  finite =
      decode(convscope::dtype_of<Number>, kOuter, pieces, kLines, kDepths, numbers[0], kStride);
}

// The sums of 16 rows, from `row` on.
template <int kRows, int kColumns, int kDepths>
struct Sums {
  using Columns = Factor<kColumns, kDepths>;
  alignas(64) float of[16][Columns::kStride];

  Sums(const Factor<kRows, kDepths>& a, int row, const Columns& b) {
    multiply(a.numbers[0], Factor<kRows, kDepths>::kStride, a.finite, row, b.numbers[0],
             Columns::kStride, b.finite, kDepths, of[0]);
  }
};

// d[4 j + 2 half + e] of lane l = the sum of row l/4 + 8 half and column 8 j + 2 (l%4) + e, and
// what it was where `add` is set.
template <int kColumns, class Rows>
void give_out(const Rows& sums, unsigned lane, float* d, bool add) {
  for (unsigned i = 0; i < kColumns / 2; ++i) {
    const unsigned row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    d[i] = (add ? d[i] : 0.0f) + sums[row][column];
  }
}

}  // namespace emulation
