// SPDX-License-Identifier: Apache-2.0
// int8_depthwise_int8_simd.cpp: rows of a depthwise convolution on integers.
//
// Idea       A channel is summed over taps, not over channels: what one instruction adds are four
//            neighbouring pixels. Four pixels x 16 channels are 64 bytes that lie side by side; two
//            shuffles turn them, so that a lane holds its channel's four pixels. A row of 3 taps
//            then is one product, and the next pixel of y takes the same window with its weights
//            moved by one: 3 windows and 6 products make two pixels of a 3x3 kernel.
// Read next  int8_depthwise.h; int8_depthwise_cpu.cpp, which uses it
#include "layers/conv2d/int8/cpu/int8_depthwise.h"
#include "layers/conv2d/int8/cpu/int8_outputs.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kBlock = 16;   // channels of a block
constexpr int kAtOnce = 32;  // pixels whose sums wait in L1 for their way to y

// Sums of up to kAtOnce pixels from j on, for the channels of vector v. Rows: 0 when not known.
template <int Shared, int Groups, int Rows>
CONVSCOPE_INLINE void add_rows(const Int8DepthwiseRow& row, Index begin, Index count, int v,
                               std::int32_t* kept) {
  constexpr int kVector = kLanes * kWeightBytes;
  constexpr int kVectors = kBlock / kLanes;
  const Ints start = load_ints(row.start + v * kLanes);
  const int rows = Rows > 0 ? Rows : row.rows;
  for (Index j = begin; j < begin + count; j += Shared, kept += Shared * kLanes) {
    Ints sums[Shared];
#pragma GCC unroll 4
    for (int d = 0; d < Shared; ++d) sums[d] = start;
    const std::int8_t* w = row.w + v * kVector;
#pragma GCC unroll 3
    for (int r = 0; r < rows; ++r) {
      const std::uint8_t* const from = row.in[r] + j * row.step * kBlock + v * kLanes;
#pragma GCC unroll 4
      for (int g = 0; g < Groups; ++g) {
        const Quad window = quads_of_pixels(from + 4 * g * kBlock);
#pragma GCC unroll 4
        for (int d = 0; d < Shared; ++d) {
          sums[d] = dot(sums[d], window, load_weights(w + (d * Groups + g) * kVectors * kVector));
        }
      }
      w += Shared * Groups * kVectors * kVector;
    }
#pragma GCC unroll 4
    for (int d = 0; d < Shared; ++d) store_ints(kept + d * kLanes, sums[d]);
  }
}

template <int Shared, int Groups>
CONVSCOPE_INLINE void add(const Int8DepthwiseRow& row, Index begin, Index count, int v,
                          std::int32_t* kept) {
  if (row.rows == 3) {
    add_rows<Shared, Groups, 3>(row, begin, count, v, kept);
  } else {
    add_rows<Shared, Groups, 0>(row, begin, count, v, kept);
  }
}

void add_windows(const Int8DepthwiseRow& row, Index begin, Index count, int v, std::int32_t* kept) {
  const int shared = row.window.shared, groups = row.window.groups;
  if (shared == 2 && groups == 1) return add<2, 1>(row, begin, count, v, kept);
  if (shared == 1 && groups == 1) return add<1, 1>(row, begin, count, v, kept);
  if (shared == 4 && groups == 2) return add<4, 2>(row, begin, count, v, kept);
  if (shared == 2 && groups == 2) return add<2, 2>(row, begin, count, v, kept);
  if (shared == 1 && groups == 2) return add<1, 2>(row, begin, count, v, kept);
  if (shared == 1 && groups == 3) return add<1, 3>(row, begin, count, v, kept);
  if (shared == 1 && groups == 4) return add<1, 4>(row, begin, count, v, kept);
}

void row_of_pixels(const Int8DepthwiseRow& row) {
  alignas(64) std::int32_t kept[(kAtOnce + 4) * kLanes];
  with_output_kind(*row.outputs, [&](auto kind) {
    for (int v = 0; v < kBlock / kLanes; ++v) {
      const ChannelOutputs<decltype(kind)> channels(*row.outputs, row.channel + v * kLanes);
      for (Index begin = 0; begin < row.pixels; begin += kAtOnce) {
        const Index count = row.pixels - begin < kAtOnce ? row.pixels - begin : kAtOnce;
        add_windows(row, begin, count, v, kept);
        for (Index j = 0; j < count; j += 4) {
          channels.store(kept + j * kLanes, count - j < 4 ? static_cast<int>(count - j) : 4,
                         row.residual, row.out, (begin + j) * kBlock + v * kLanes, kBlock);
        }
      }
    }
  });
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(int8_depthwise_kernels,
                       (Int8DepthwiseKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                             .weight_bytes = CONVSCOPE_ISA::kWeightBytes,
                                             .row = CONVSCOPE_ISA::row_of_pixels}))
