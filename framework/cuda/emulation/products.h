// SPDX-License-Identifier: Apache-2.0
// products.h: the factors of emulated tensor-core products. Where a problem is small, a tile is
// mostly padding, so lines of zeros are not multiplied.
#pragma once

#include <algorithm>
#include <cmath>

namespace emulation {

// kLines rows of A or columns of B, kDepths numbers of each.
template <int kLines, int kDepths>
struct Factor {
  float numbers[kLines][kDepths];
  bool zero[kLines];  // all numbers of the line
  bool finite;        // all numbers of all lines: times zero they are zero

  // number(line, depth) gives each of them.
  template <class Number>
  void fill(const Number& number) {
    finite = true;
    for (int line = 0; line < kLines; ++line) {
      zero[line] = true;
      for (int depth = 0; depth < kDepths; ++depth) {
        const float value = number(line, depth);
        numbers[line][depth] = value;
        zero[line] = zero[line] && value == 0;
        finite = finite && std::isfinite(value);
      }
    }
  }
};

// Sum over all depths, in parts for the vectors of the compiler.
template <int kDepths>
float dot(const float (&a)[kDepths], const float (&b)[kDepths]) {
  static_assert(kDepths % 8 == 0);
  float parts[8] = {};
  for (int depth = 0; depth < kDepths; depth += 8) {
    for (int e = 0; e < 8; ++e) parts[e] += a[depth + e] * b[depth + e];
  }
  float sum = 0;
  for (const float part : parts) sum += part;
  return sum;
}

template <int kRows, int kColumns, int kDepths>
float dot(const Factor<kRows, kDepths>& a, int row, const Factor<kColumns, kDepths>& b,
          int column) {
  if ((a.zero[row] && b.finite) || (b.zero[column] && a.finite)) return 0;
  return dot(a.numbers[row], b.numbers[column]);
}

}  // namespace emulation
