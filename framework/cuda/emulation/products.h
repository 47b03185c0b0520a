// SPDX-License-Identifier: Apache-2.0
// products.h: the operands of emulated tensor-core products, and their accumulators.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "framework/dtype.h"
#include "framework/int_math.h"

namespace emulation {

// Columns per vector.
inline constexpr int kColumnsAtOnce = 16;

// Maximum number of elements decoded at a time: 256 lines (rows of A or columns of B) of 64
// elements.
inline constexpr int kMaxNumbers = 256 * 64;

// An operand of kLines lines, each with kDepths elements along K. A line is a row of A or a column
// of B. Lines after the last line of the operand contain zeros.
template <int kLines, int kDepths>
struct Factor {
  static constexpr int kStride = convscope::round_up(kLines, kColumnsAtOnce);
  alignas(64) float numbers[kDepths][kStride] = {};
  bool finite = true;  // no inf or NaN: zero times any element is zero

  // Decodes 16-byte pieces of shared memory. The elements of a piece have one line and adjacent
  // indices of K or, with kOuter, one index of K and adjacent lines. place(line, k) returns the
  // address of the piece whose first element is (line, k).
  template <class Number, bool kOuter, class Place>
  void fill(const Place& place);
};

// Decodes each piece into a column of `numbers`, or with `outer`, into a row. Rows are `stride`
// elements apart. Returns true when all elements are finite.
bool decode(convscope::DType dtype, bool outer, const unsigned char* const* pieces, int lines,
            int depths, float* numbers, int stride);

// Computes sums[row][column] = A B for rows `row` to row + 15 of A. Each result is the total of
// eight partial sums in a fixed order, so the bits are the same on all machines.
void multiply(const float* a, int a_stride, bool a_finite, int row, const float* b, int b_stride,
              bool b_finite, int depths, float* sums);

template <int kLines, int kDepths>
template <class Number, bool kOuter, class Place>
void Factor<kLines, kDepths>::fill(const Place& place) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(Number));
  constexpr int kLineStep = kOuter ? kPiece : 1, kDepthStep = kOuter ? 1 : kPiece;
  static_assert(kLines % kLineStep == 0 && kDepths % kDepthStep == 0);
  static_assert(kLines * kDepths <= kMaxNumbers);
  const unsigned char* pieces[kLines * kDepths / kPiece];
  int count = 0;
  for (int depth = 0; depth < kDepths; depth += kDepthStep) {
    for (int line = 0; line < kLines; line += kLineStep) pieces[count++] = place(line, depth);
  }
  finite =
      decode(convscope::dtype_of<Number>, kOuter, pieces, kLines, kDepths, numbers[0], kStride);
}

// Computes the products of 16 rows of A, beginning with `row`.
template <int kRows, int kColumns, int kDepths>
struct Sums {
  using Columns = Factor<kColumns, kDepths>;
  alignas(64) float of[16][Columns::kStride];

  Sums(const Factor<kRows, kDepths>& a, int row, const Columns& b) {
    multiply(a.numbers[0], Factor<kRows, kDepths>::kStride, a.finite, row, b.numbers[0],
             Columns::kStride, b.finite, kDepths, of[0]);
  }
};

// Sets d[4 j + 2 half + e] of lane l to the sum of row l/4 + 8 half and column 8 j + 2 (l%4) + e,
// plus its old value where `add` is set.
template <int kColumns, class Rows>
void give_out(const Rows& sums, unsigned lane, float* d, bool add) {
  for (unsigned j = 0; j < kColumns / 8; ++j) {
    for (unsigned half = 0; half < 2; ++half, d += 2) {
      const float* const pair = &sums[lane / 4 + 8 * half][8 * j + lane % 4 * 2];
      d[0] = (add ? d[0] : 0.0f) + pair[0];
      d[1] = (add ? d[1] : 0.0f) + pair[1];
    }
  }
}

// The operands of one instruction mma.sync of a warp: A [16 x kDepths] and B [kDepths x 8].
template <class Number, int kDepths>
struct WarpFactors {
  alignas(32) Number rows[16][kDepths], columns[kDepths][8];

  // Sets out[l].d[i] to the sum, in the order of K, of row l/4 + 8 (i/2) and column 2 (l%4) + i%2.
  template <class Sums>
  void multiply(std::array<Sums, 32>& out) const {
    using Vector [[gnu::vector_size(8 * sizeof(Number))]] = Number;
    for (unsigned row = 0; row < 16; ++row) {
      Vector sums = {};
      for (int depth = 0; depth < kDepths; ++depth) {
        Vector line;
        std::memcpy(&line, columns[depth], sizeof line);
        sums += rows[row][depth] * line;
      }
      for (unsigned column = 0; column < 8; ++column) {
        out[row % 8 * 4 + column / 2].d[row / 8 * 2 + column % 2] = sums[column];
      }
    }
  }
};

}  // namespace emulation
