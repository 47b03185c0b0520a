// SPDX-License-Identifier: Apache-2.0
// deform_pass.cpp: code that the three directions of fused deformable convolution share: places of
// a run of pixels, panels of samples, and register tiles of accumulators.
// Read next  deform_fused_cpu.cpp
#include "layers/deform_conv2d/fused/cpu/deform_pass.h"

#include <array>

#include "framework/ops/gemm/gemm_kernels.h"

namespace convscope {

constinit IsaTable<DeformKernels> deform_kernels;

namespace deform {

DeformPlaces places_at(const DeformTiling& plan, float* all, Index tap) {
  return {.data = all + tap * plan.places_floats()};
}

void Places::compute(Index n, Index group, Index first, Index count, float* to) const {
  const DeformConv2dProblem& z = plan_.z;
  std::array<float, DeformTiling::kChunkPixels> base_v, base_u;
  Index p = first / z.q(), q = first % z.q();
  for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) {
    base_v[j] = static_cast<float>(p * z.stride_h - z.pad_top);
    base_u[j] = static_cast<float>(q * z.stride_w - z.pad_left);
    if (++q == z.q()) q = 0, ++p;
  }
  for (Index tap = 0; tap < plan_.taps; ++tap) {
    const Index at = (n * z.offset_groups + group) * plan_.taps + tap;
    const float* const offset = offset_ + 2 * at * plan_.pixels + first;
    deform_kernels.get().places(
        {.pixels = static_cast<int>(count),
         .base_v = base_v.data(),
         .base_u = base_u.data(),
         .tap_v = static_cast<float>(tap / z.s * z.dilation_h),
         .tap_u = static_cast<float>(tap % z.s * z.dilation_w),
         .offset_v = offset,
         .offset_u = offset + plan_.pixels,
         .mask = mask_ == nullptr ? nullptr : mask_ + at * plan_.pixels + first,
         .height = static_cast<std::int32_t>(z.h),
         .width = static_cast<std::int32_t>(z.w),
         .to = places_at(plan_, to, tap)});
  }
}

void fill_panel(const DeformTiling& plan, Index g, Index begin, Index end, Index pixels,
                const float* x, Index x_block, float* places, float* panel) {
  const Index step = plan.panel_row(begin, end), channels = plan.channels(begin, end);
  const Index first_group = plan.offset_group(g, begin);
  // A row of the panel holds the blocks in order. A block with fewer than 16 channels writes beyond
  // its end, and the next block overwrites these elements.
  for (Index tap = 0; tap < plan.taps; ++tap) {
    for (Index b = begin; b < end;) {
      const Index group = plan.offset_group(g, b);
      Index next = b + 1;  // whole blocks of one offset group are sampled together
      while (next < end && plan.offset_group(g, next) == group &&
             plan.block(next - 1).channels == kChannelBlock)
        ++next;
      deform_kernels.get().sample(
          {.pixels = static_cast<int>(pixels),
           .places = places_at(
               plan, places + (group - first_group) * plan.taps * plan.places_floats(), tap),
           .x = x + (b - begin) * x_block,
           .x_block = x_block,
           .blocks = static_cast<int>(next - b),
           .to = panel + tap * channels + plan.block(b).first - plan.block(begin).first,
           .to_step = step});
      b = next;
    }
  }
}

void sum_tiles(const DeformTiling& plan, const Sums& sums) {
  const Nchw16cKernels& kernels = nchw16c_kernels.get();
  alignas(64) std::array<float, DeformTiling::kChunkPixels * 32> kept;
  constexpr Index kChain = kSumChain / kChannelBlock;  // blocks
  Nchw16cTiles tiles;
  tiles.depth = ceil_div(sums.depth, kChannelBlock);
  tiles.last = static_cast<int>(sums.depth - (tiles.depth - 1) * kChannelBlock);
  tiles.in_block = sums.in_block;
  tiles.in_step = sums.in_step;
  tiles.out_block = sums.out_block;
  tiles.out_step = sums.out_step;
  const RowTiles rows(sums.pixels, kernels.pixels);
  for (Index lane = 0; lane < sums.lanes;) {
    const Index width = plan.width_at(lane, sums.lanes);
    tiles.w = sums.w + lane * tiles.depth * kChannelBlock;
    tiles.w_block = kChannelBlock * width;
    tiles.start = nullptr;
    tiles.starts = 0;
    if (sums.start != nullptr && lane < sums.starts) {
      tiles.start = sums.start + lane;
      tiles.starts = static_cast<int>(std::min(width, sums.starts - lane));
    }
    float* const out = sums.out + lane / kChannelBlock * sums.out_block + lane % kChannelBlock;
    for (Index d = 0; d < tiles.depth; d += kChain) {
      for (Index t = 0; t < rows.tiles; ++t) {
        const Index begin = rows.begin(t);
        const int height = rows.height(t);
        const Nchw16cTap tap{.in = 0, .w = 0, .first = 0, .end = static_cast<std::int16_t>(height)};
        float* const to = out + begin * sums.out_step;
        kernels.tile(tiles,
                     {.pixels = height,
                      .taps = 1,
                      .tap = &tap,
                      .in = sums.in + begin * sums.in_step,
                      .out = to,
                      .residual = sums.add ? to : nullptr},
                     {.block = d,
                      .depth = std::min(kChain, tiles.depth - d),
                      .tap = 0,
                      .end = 1,
                      .first = d == 0,
                      .last = d + kChain >= tiles.depth,
                      .ahead = 0},
                     kept.data() + begin * width, static_cast<int>(width));
      }
    }
    lane += width;
  }
}

}  // namespace deform
}  // namespace convscope
