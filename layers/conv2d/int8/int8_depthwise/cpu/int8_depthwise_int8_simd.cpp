// SPDX-License-Identifier: Apache-2.0
// int8_depthwise_int8_simd.cpp: rows of a depthwise convolution on int8 values.
//
// Idea       The sum of a channel runs over taps, not over channels, so one instruction adds four
//            neighbouring pixels. Four pixels x 16 channels are 64 contiguous bytes. Two shuffles
//            transpose them, so that each lane holds its channel's four pixels. A row of 3 taps
//            then is one product. The next pixel of y multiplies the same window by weights that
//            are moved by one: 3 windows and 6 products make two pixels of a 3x3 kernel.
// Read next  int8_depthwise.h; int8_depthwise_cpu.cpp, which uses it
#include "layers/conv2d/int8/int8_depthwise/cpu/int8_depthwise.h"
#include "layers/conv2d/int8/shared/cpu/int8_outputs.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using Index = std::int64_t;

constexpr int kBlock = 16;   // channels of a block
constexpr int kAtOnce = 32;  // pixels whose sums wait in L1 for the epilogue

// Computes the sums of `count` pixels for the channels of vector v. With Rows 0, the number of
// kernel rows is z.rows, known at run time.
template <int Shared, int Groups, int Rows>
CONVSCOPE_INLINE void add_rows(const Int8DepthwiseRows& z, const std::uint8_t* in, Index count,
                               int v, std::int32_t* kept) {
  constexpr int kVector = kLanes * kWeightBytes;
  constexpr int kVectors = kBlock / kLanes;
  const Ints start = load_ints(z.start + v * kLanes);
  const int rows = Rows > 0 ? Rows : z.rows;
  in += v * kLanes;
  for (Index j = 0; j < count;
       j += Shared, kept += Shared * kLanes, in += Shared * z.step * kBlock) {
    Ints sums[Shared];
#pragma GCC unroll 4
    for (int d = 0; d < Shared; ++d) sums[d] = start;
    const std::int8_t* w = z.w + v * kVector;
#pragma GCC unroll 3
    for (int r = 0; r < rows; ++r) {
      const std::uint8_t* const from = in + r * z.tap_step;
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
CONVSCOPE_INLINE void add(const Int8DepthwiseRows& z, const std::uint8_t* in, Index count, int v,
                          std::int32_t* kept) {
  if (z.rows == 3) {
    add_rows<Shared, Groups, 3>(z, in, count, v, kept);
  } else {
    add_rows<Shared, Groups, 0>(z, in, count, v, kept);
  }
}

void add_windows(const Int8DepthwiseRows& z, const std::uint8_t* in, Index count, int v,
                 std::int32_t* kept) {
  const int shared = z.window.shared, groups = z.window.groups;
  if (shared == 2 && groups == 1) return add<2, 1>(z, in, count, v, kept);
  if (shared == 1 && groups == 1) return add<1, 1>(z, in, count, v, kept);
  if (shared == 4 && groups == 2) return add<4, 2>(z, in, count, v, kept);
  if (shared == 2 && groups == 2) return add<2, 2>(z, in, count, v, kept);
  if (shared == 1 && groups == 2) return add<1, 2>(z, in, count, v, kept);
  if (shared == 1 && groups == 3) return add<1, 3>(z, in, count, v, kept);
  if (shared == 1 && groups == 4) return add<1, 4>(z, in, count, v, kept);
}

void rows_of_pixels(const Int8DepthwiseRows& z) {
  alignas(64) std::int32_t kept[(kAtOnce + 4) * kLanes];
  with_output_kind(*z.outputs, [&](auto kind) {
    for (int v = 0; v < kBlock / kLanes; ++v) {
      const ChannelOutputs<decltype(kind)> channels(*z.outputs, z.channel + v * kLanes);
      for (Index p = 0; p < z.height; ++p) {
        const std::uint8_t* const in = z.in + p * z.row_step;
        for (Index begin = 0; begin < z.pixels; begin += kAtOnce) {
          const Index count = z.pixels - begin < kAtOnce ? z.pixels - begin : kAtOnce;
          add_windows(z, in + begin * z.step * kBlock, count, v, kept);
          channels.store(kept, static_cast<int>(count), z.residual, z.out,
                         (p * z.pixels + begin) * kBlock + v * kLanes, kBlock);
        }
      }
    }
  });
}

// Pads rows. Rows are short, so loops of 64 and 16 bytes cost less than calls of memcpy.
void pad(const Int8PaddedRows& z) {
  struct Pixel {
    std::uint8_t v[kBlock];
  } border;
  for (int c = 0; c < kBlock; ++c) border.v[c] = z.offset;
  auto* to = reinterpret_cast<Pixel*>(z.to);
  for (Index i = 0; i < z.count; ++i, to += z.width) {
    const Index h = z.first + i;
    const bool outside = h < 0 || h >= z.h;
    const Index left = outside ? z.width : z.left;
    for (Index j = 0; j < left; ++j) to[j] = border;
    if (outside) continue;
    const auto* const from = reinterpret_cast<const Pixel*>(z.plane) + h * z.w;
    Pixel* const inside = to + left;
    if (z.offset == 0) {
      Index j = 0;
#pragma GCC unroll 1
      for (; j + 4 <= z.w; j += 4) __builtin_memcpy(inside + j, from + j, 4 * sizeof(Pixel));
#pragma GCC unroll 1
      for (; j < z.w; ++j) inside[j] = from[j];
    } else {
      for (Index j = 0; j < z.w; ++j) {
        for (int c = 0; c < kBlock; ++c) inside[j].v[c] = from[j].v[c] ^ 128;
      }
    }
    for (Index j = left + z.w; j < z.width; ++j) to[j] = border;
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(int8_depthwise_kernels,
                       (Int8DepthwiseKernels{.lanes = CONVSCOPE_ISA::kLanes,
                                             .weight_bytes = CONVSCOPE_ISA::kWeightBytes,
                                             .pad = CONVSCOPE_ISA::pad,
                                             .rows = CONVSCOPE_ISA::rows_of_pixels}))
