// SPDX-License-Identifier: Apache-2.0
// reduce_simd.cpp: sums of rows and of columns.
//
// Numerics: Float sums have blocks of at most kBlock terms per lane. The sums of blocks are added
// in double for rows, and in float for columns. So the error grows with kBlock + (number of
// blocks), not with the number of terms. In sums of 16 columns (the channels of a pixel), at most
// kFoldRows terms are added in float, and these float sums are added in double.
#include "framework/ops/reduce_simd.h"

#include "framework/simd/row_folds.h"
#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

constexpr int64_t kBlock = 64;  // terms per lane in a block
constexpr int kChains = 4;      // independent sums: an add takes 4 cycles, 1 or 2 start per cycle

double row_sum(const float* x, int64_t n) {
  double total = 0;
  constexpr int64_t kStep = kChains * kLanes;
  while (n >= kStep) {
    Vec part[kChains];
    for (Vec& p : part) p = zero();
    const int64_t steps = n / kStep < kBlock ? n / kStep : kBlock;
    for (int64_t i = 0; i < steps; ++i, x += kStep) {
      for (int c = 0; c < kChains; ++c) part[c] = part[c] + load(x + c * kLanes);
    }
    n -= steps * kStep;
    total += static_cast<double>(sum((part[0] + part[1]) + (part[2] + part[3])));
  }
  float rest = 0;
  for (int64_t i = 0; i < n; ++i) rest += x[i];
  return total + static_cast<double>(rest);
}

// Sums kVectors * kLanes columns at once. Only `last` lanes of the last vector are used.
template <int kVectors>
CONVSCOPE_INLINE void column_tile(const float* x, int64_t rows, int64_t stride, int last, float* y,
                                  bool add) {
  constexpr int kEnd = kVectors - 1;
  Vec total[kVectors];
  for (int v = 0; v < kVectors; ++v) total[v] = zero();
  if (add) {
    for (int v = 0; v < kEnd; ++v) total[v] = load(y + v * kLanes);
    total[kEnd] = load_first(y + kEnd * kLanes, last);
  }
  for (int64_t begin = 0; begin < rows; begin += kBlock) {
    const int64_t end = rows < begin + kBlock ? rows : begin + kBlock;
    Vec part[kVectors];
    for (Vec& p : part) p = zero();
    for (int64_t i = begin; i < end; ++i) {
      const float* row = x + i * stride;
      for (int v = 0; v < kEnd; ++v) part[v] = part[v] + load(row + v * kLanes);
      part[kEnd] = part[kEnd] + load_first(row + kEnd * kLanes, last);
    }
    for (int v = 0; v < kVectors; ++v) total[v] = total[v] + part[v];
  }
  for (int v = 0; v < kEnd; ++v) store(y + v * kLanes, total[v]);
  store_first(y + kEnd * kLanes, total[kEnd], last);
}

void column_sum(const float* x, int64_t rows, int64_t stride, int64_t columns, float* y, bool add) {
  int64_t j = 0;
  for (; j + 4 * kLanes <= columns; j += 4 * kLanes) {
    column_tile<4>(x + j, rows, stride, kLanes, y + j, add);
  }
  for (; j < columns; j += kLanes) {
    const int last = columns - j < kLanes ? static_cast<int>(columns - j) : kLanes;
    column_tile<1>(x + j, rows, stride, last, y + j, add);
  }
}

void sums_of_16(const float* x, int64_t rows, const float* shift, double* total) {
  float from[kRowLanes];
  for (int c = 0; c < kRowLanes; ++c) from[c] = shift[c];
  fold_rows<1>(
      rows, total, [&](Vec(&part)[1], int64_t at, int lane) __attribute__((always_inline)) {
        part[0] = part[0] + (load(x + at) - load(from + lane));
      });
}

}  // namespace
constexpr ReduceKernels kReduce{
    .row_sum = row_sum, .column_sum = column_sum, .sums_of_16 = sums_of_16};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(reduce_kernels, convscope::CONVSCOPE_ISA::kReduce)
