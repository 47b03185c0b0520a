// SPDX-License-Identifier: Apache-2.0
// row_folds.h: sums of columns over rows of 16 elements. An example of such a row is a pixel's 16
// channels in NCHW16c ([N,C/16,H,W,16]). For *_simd.cpp files.
//
// At most kFoldRows elements are added in float, and the resulting float sums are added in double.
// An addition takes 3 to 4 cycles, and two can start per cycle. So eight independent sums, of
// different rows, run in parallel.
#pragma once

#include <cstdint>

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {

inline constexpr int kRowLanes = 16;
inline constexpr std::int64_t kFoldRows = 64;

// Computes kSums sums over the rows for each of 16 columns. add(part, at, lane) adds one vector of
// terms to each part[k], k < kSums. The vector begins at column `lane` of a row. Its first element
// has the index at = 16 row + lane. The total of sum k and column c is added to total[16 k + c].
template <int kSums, class Add>
CONVSCOPE_INLINE void fold_rows(std::int64_t rows, double* total, const Add& add) {
  constexpr int kVectors = kLanes == 1 ? 4 : kRowLanes / kLanes;  // vectors of a row, at once
  constexpr int kSide = kVectors * kSums < 8 ? 8 / (kVectors * kSums) : 1;
  constexpr int kColumns = kVectors * kLanes;
  for (int first = 0; first < kRowLanes; first += kColumns) {
    for (std::int64_t begin = 0; begin < rows; begin += kFoldRows) {
      const std::int64_t end = rows < begin + kFoldRows ? rows : begin + kFoldRows;
      Vec part[kSide][kVectors][kSums];
#pragma GCC unroll 8
      for (int s = 0; s < kSide; ++s) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 2
          for (int k = 0; k < kSums; ++k) part[s][v][k] = zero();
        }
      }
      std::int64_t i = begin;
      for (; i + kSide <= end; i += kSide) {
#pragma GCC unroll 8
        for (int s = 0; s < kSide; ++s) {
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            const int lane = first + v * kLanes;
            add(part[s][v], (i + s) * kRowLanes + lane, lane);
          }
        }
      }
      for (; i < end; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const int lane = first + v * kLanes;
          add(part[0][v], i * kRowLanes + lane, lane);
        }
      }
#pragma GCC unroll 8
      for (int s = 1; s < kSide; ++s) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 2
          for (int k = 0; k < kSums; ++k) part[0][v][k] = part[0][v][k] + part[s][v][k];
        }
      }
#pragma GCC unroll 2
      for (int k = 0; k < kSums; ++k) {
        float sums[kColumns];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) store(sums + v * kLanes, part[0][v][k]);
        double* const to = total + k * kRowLanes + first;
        for (int c = 0; c < kColumns; ++c) to[c] += static_cast<double>(sums[c]);
      }
    }
  }
}

}  // namespace convscope::CONVSCOPE_ISA
