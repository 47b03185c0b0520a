// SPDX-License-Identifier: Apache-2.0
// direct_small_groups_weight_simd.cpp: register tiles of backward_weight of small groups in
// NCHW16c, called by direct_small_groups_weights.cpp. The accumulators of one kernel row stay in
// registers over the pixels of some rows.
//
// Method     Each column of x is loaded and shuffled once for each step d, for all pixels of dy
//            whose taps read the column. Four pixels are processed at once (two on AVX2).
// Cost       per pixel of a 3x3 kernel's row and step: 3 FMAs and, with four pixels at once, 1.5
//            shuffles (none in step 0)
// Choices    taps x steps accumulators: AVX-512 3 x 8 = 24 + 4 of dy + 3 of x in 32 registers; AVX2
//            3 x 4 = 12 + 2 + 2 in 16 registers, with groups of 8 in two passes
// Read next  direct_small_groups_tiles.h; direct_small_groups_weights.cpp, the caller
#include "framework/simd/lane_exchange.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/direct_small_groups/cpu/direct_small_groups_tiles.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;
constexpr int kBlock = 16;

constexpr int kPixels = kManyRegisters ? 4 : 2;
constexpr int kMaxSteps = kManyRegisters ? 8 : 4;

// Adds the products of `Pixels` neighbouring pixels of dy. With Checked, columns outside [first,
// end) are skipped.
template <GroupForm Form, int Pixels, int Steps, bool Within, bool Checked>
CONVSCOPE_INLINE void add_pixels(const float* in, const float* dy, Index first, Index end,
                                 Vec (&sums)[taps_of(Form)][Steps]) {
  constexpr int kTaps = taps_of(Form), kStride = stride_of(Form);
  constexpr int kColumns = (Pixels - 1) * kStride + kTaps;
  Vec gradient[Pixels];
#pragma GCC unroll 4
  for (int j = 0; j < Pixels; ++j) gradient[j] = load(dy + j * kBlock);
#pragma GCC unroll 16
  for (int c = 0; c < kColumns; ++c) {
    if (Checked && (c < first || c >= end)) continue;
#pragma GCC unroll 8
    for (int d = 0; d < Steps; ++d) {
      const float* const at = in + c * kBlock;
      const Vec value = Within ? broadcast(at[d]) : exchanged(load(at), d);
#pragma GCC unroll 3
      for (int t = 0; t < kTaps; ++t) {
        const int j = (c - t) / kStride;
        if (c < t || (c - t) % kStride != 0 || j >= Pixels) continue;
        sums[t][d] = fma(value, gradient[j], sums[t][d]);
      }
    }
  }
}

template <GroupForm Form, int Pixels, int Steps, bool Within>
CONVSCOPE_INLINE void add_pixels(const float* in, const float* dy, Index first, Index end,
                                 Vec (&sums)[taps_of(Form)][Steps]) {
  constexpr int kColumns = (Pixels - 1) * stride_of(Form) + taps_of(Form);
  if (taps_of(Form) == 1 || (first <= 0 && end >= kColumns)) {
    return add_pixels<Form, Pixels, Steps, Within, false>(in, dy, first, end, sums);
  }
  add_pixels<Form, Pixels, Steps, Within, true>(in, dy, first, end, sums);
}

// Adds one chain of products: pixels [q, q + columns) of `rows` rows.
template <GroupForm Form, int Steps, bool Within>
CONVSCOPE_INLINE void add_chain(const GroupWeightTile& tile, const float* in, const float* dy,
                                Index rows, Index q, Index columns, float* to) {
  constexpr int kTaps = taps_of(Form), kStride = stride_of(Form);
  constexpr int kAtOnce = kTaps == 1 ? 1 : kPixels;  // single taps: pixels may be any distance
                                                     // apart
  Vec sums[kTaps][Steps];
#pragma GCC unroll 3
  for (int t = 0; t < kTaps; ++t) {
#pragma GCC unroll 8
    for (int d = 0; d < Steps; ++d) sums[t][d] = zero();
  }
  const bool ahead = kTaps > 1 && tile.in_ahead != 0;
  in += q * tile.in_step;
  dy += q * kBlock;
  for (Index p = rows; p > 0; --p, in += tile.in_row, dy += tile.dy_row) {
    const float* pixel = in;
    const float* gradient = dy;
    Index first = tile.first - q * kStride, end = tile.end - q * kStride;
    Index left = columns;
    for (; left >= kAtOnce; left -= kAtOnce) {
      if (ahead) {
#pragma GCC unroll 8
        for (int c = 0; c < kAtOnce * kStride; ++c) {
          __builtin_prefetch(pixel + tile.in_ahead + c * kBlock, 0, 2);
        }
#pragma GCC unroll 4
        for (int j = 0; j < kAtOnce; ++j) {
          __builtin_prefetch(gradient + tile.dy_ahead + j * kBlock, 0, 2);
        }
      }
      add_pixels<Form, kAtOnce, Steps, Within>(pixel, gradient, first, end, sums);
      pixel += kAtOnce * tile.in_step;
      gradient += kAtOnce * kBlock;
      first -= kAtOnce * kStride;
      end -= kAtOnce * kStride;
    }
    if constexpr (kAtOnce > 1) {
      for (; left > 0; --left, pixel += tile.in_step, gradient += kBlock) {
        add_pixels<Form, 1, Steps, Within>(pixel, gradient, first, end, sums);
        first -= kStride;
        end -= kStride;
      }
    }
  }
#pragma GCC unroll 3
  for (int t = 0; t < kTaps; ++t) {
#pragma GCC unroll 8
    for (int d = 0; d < Steps; ++d) {
      float* const sum = to + d * tile.sums_step + t * tile.sums_tap;
      store(sum, load(sum) + sums[t][d]);
    }
  }
}

// Adds the products in chains of whole rows (framework/simd/sum_chain.h). A row longer than a chain
// is split.
template <GroupForm Form, int Steps, bool Within>
CONVSCOPE_INLINE void add_chains(const GroupWeightTile& tile) {
  constexpr int kPart = kSumChain / kPixels * kPixels;
  for (int d = 0; d < tile.channels; d += Steps) {
    const float* const in = tile.in + (Within ? d : 0);
    for (Index q = 0; q < tile.columns; q += kPart) {
      const Index columns = tile.columns - q < kPart ? tile.columns - q : kPart;
      const Index most = kSumChain / columns;
      for (Index p = 0; p < tile.rows; p += most) {
        const Index rows = tile.rows - p < most ? tile.rows - p : most;
        add_chain<Form, Steps, Within>(tile, in + p * tile.in_row, tile.dy + p * tile.dy_row, rows,
                                       q, columns, tile.sums + d * tile.sums_step);
      }
    }
  }
}

template <GroupForm Form>
void tile_of(const GroupWeightTile& tile) {
  if constexpr (kExchangedGroup < 8) {
    if (tile.channels >= kLanes) {
      return tile.channels == 2 ? add_chains<Form, 2, true>(tile) : add_chains<Form, 4, true>(tile);
    }
  }
  if constexpr (kExchangedGroup > 1) {
    if (tile.channels == 2) return add_chains<Form, 2, false>(tile);
    if (tile.channels == 4) return add_chains<Form, 4, false>(tile);
    if constexpr (kMaxSteps == 8) add_chains<Form, 8, false>(tile);
  }
}

void tile(const GroupWeightTile& tile, GroupForm form) {
  form == GroupForm::single   ? tile_of<GroupForm::single>(tile)
  : form == GroupForm::triple ? tile_of<GroupForm::triple>(tile)
                              : tile_of<GroupForm::triple_by_two>(tile);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(group_weight_kernels, (GroupWeightKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                                                 .tile = CONVSCOPE_ISA::tile}))
