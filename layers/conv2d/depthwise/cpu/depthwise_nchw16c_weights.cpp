// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c_weights.cpp: backward_weight of depthwise convolution in NCHW16c.
//
// Method     A unit is some rows of one image, or several small images, for one block of 16
//            channels. The unit stays in L2 while all rows of the kernel read it. Its sums [R,S,16]
//            are computed in chains (framework/simd/sum_chain.h) and then added to the sums of a
//            slice, which is a range of units. Slices are added up in order, so dw has the same
//            bits for any number of threads. Threads take (slice, block). When there are few
//            blocks, there are more slices.
// Cost       FLOPs = 2 N K P Q R S; bytes = x and dy once; workspace = dw for each slice and the
//            sums of a unit for each thread
// Choices    kUnitPixels 1024: 64 KiB of dy. In each sum, a unit of one image has at most kSumChain
//            chains of a strip, and a slice at most kSumChain units
// Read next  depthwise_nchw16c_weight_simd.cpp, the strips
#include <algorithm>

#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "framework/simd/sum_chain.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c_tiles.h"
#include "layers/dispatch/activation_layout.h"

namespace convscope {

constinit IsaTable<DepthwiseNchw16cWeight> depthwise_nchw16c_weight;

namespace depthwise_nchw16c_pass {
namespace {

using Index = std::int64_t;

constexpr Index kUnitPixels = 1024;
constexpr Index kFarBytes = 8 << 20;  // as in depthwise_nchw16c.cpp
constexpr Index kSlices = 16;         // chunks for the threads
constexpr double kChunkFlops = 2e5;

struct DepthwiseWeightTiling {
  explicit DepthwiseWeightTiling(const Conv2dProblem& z)
      : blocks(ceil_div(z.k, kChannelBlock)), taps(z.r * z.s) {
    const Index p = z.p();
    const Index plane = p * z.q();
    // A unit is some rows of one image, or several whole images. There are enough units for the
    // wanted number of slices.
    const double flops = z.nominal_flops() / static_cast<double>(blocks);
    const Index wanted = std::clamp<Index>(
        std::min(ceil_div(kSlices, blocks), static_cast<Index>(flops / kChunkFlops)), 1, z.n * p);
    rows = std::clamp<Index>(kUnitPixels / z.q(), 1, p);
    rows = std::min(rows, ceil_div(p, ceil_div(wanted, z.n)));
    rows = ceil_div(p, ceil_div(p, rows));
    images = rows < p ? 1 : std::clamp<Index>(kUnitPixels / plane, 1, z.n / std::min(wanted, z.n));
    parts = ceil_div(p, rows);
    units = ceil_div(z.n, images) * parts;
    slices = std::min(units, std::max(wanted, ceil_div(units, Index{kSumChain})));
  }
  Index sums_floats() const { return taps * kChannelBlock; }

  Index blocks, taps;
  Index rows, images;          // of a unit; several images only if whole
  Index parts, units, slices;  // of an image: units; of a block of channels: units, slices
};

}  // namespace

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction == Direction::forward) return 0;
  if (direction == Direction::backward_data) {
    return static_cast<std::size_t>(z.stride_h + z.stride_w) * sizeof(DepthwiseAxis);
  }
  const DepthwiseWeightTiling plan(z);
  return static_cast<std::size_t>((plan.slices * plan.blocks + num_threads()) *
                                  plan.sums_floats()) *
         sizeof(float);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DepthwiseWeightTiling plan(z);
  const DepthwiseMap map = depthwise_map(z);
  const auto weight = depthwise_nchw16c_weight.get().weight;
  const auto transpose = gemm_kernels.get().transpose;
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const dy = static_cast<const float*>(args.dy);
  auto* const dw = static_cast<float*>(args.dw);
  auto* const sums = static_cast<float*>(args.workspace);  // [slices, blocks, R S, 16]
  const Index floats = plan.sums_floats();
  const Index x_plane = z.h * z.w * kChannelBlock;
  const Index dy_plane = map.p * map.q * kChannelBlock;
  float* const thread_sums = sums + plan.slices * plan.blocks * floats;  // [threads, R S, 16]

  const bool far = z.n * plan.blocks * (x_plane + dy_plane) * Index{sizeof(float)} > kFarBytes;

  const auto write = [&](Index block) {
    float* const total = sums + block * floats;
    for (Index slice = 1; slice < plan.slices; ++slice) {
      const float* const more = total + slice * plan.blocks * floats;
      for (Index i = 0; i < floats; ++i) total[i] += more[i];
    }
    const Index k = block * kChannelBlock;
    transpose(total, kChannelBlock, plan.taps, std::min(kChannelBlock, z.k - k), dw + k * plan.taps,
              plan.taps);
  };
  const auto sum = [&](Index job, int thread) {
    const Index slice = job / plan.blocks;
    const Index block = job % plan.blocks;
    const Index k = block * kChannelBlock;
    float* const to = sums + job * floats;
    float* const unit_sums = thread_sums + thread * floats;
    std::fill_n(to, floats, 0.0f);
    if (slice == 0 && args.accumulate) {
      transpose(dw + k * plan.taps, plan.taps, std::min(kChannelBlock, z.k - k), plan.taps, to,
                kChannelBlock);
    }
    const Index end = (slice + 1) * plan.units / plan.slices;
    for (Index unit = slice * plan.units / plan.slices; unit < end; ++unit) {
      const Index n = unit / plan.parts * plan.images;
      const Index p = unit % plan.parts * plan.rows;
      std::fill_n(unit_sums, floats, 0.0f);
      DepthwiseUnit here{.x = x + (n * plan.blocks + block) * x_plane,
                         .x_step = plan.blocks * x_plane,
                         .dy = dy + (n * plan.blocks + block) * dy_plane,
                         .dy_step = plan.blocks * dy_plane,
                         .images = std::min(plan.images, z.n - n),
                         .begin = p,
                         .end = std::min(p + plan.rows, map.p)};
      if (far) {  // the offset of the next unit
        const bool next_rows = p + plan.rows < map.p;
        const Index images = next_rows ? 0 : plan.images;
        const Index rows = next_rows ? plan.rows : -p;
        here.x_ahead = images * here.x_step + rows * map.stride_h * map.w * kChannelBlock;
        here.dy_ahead = images * here.dy_step + rows * map.q * kChannelBlock;
      }
      weight(map, here, unit_sums);
      for (Index i = 0; i < floats; ++i) to[i] += unit_sums[i];
    }
    if (plan.slices == 1) write(block);
  };
  const double flops =
      z.nominal_flops() / static_cast<double>(plan.slices * plan.blocks);  // of a job
  const auto grain = static_cast<Index>(kChunkFlops / flops) + 1;
  const Index jobs = plan.slices * plan.blocks;
  parallel_chunks(ceil_div(jobs, grain), [&](Index chunk, int thread) {
    const Index end = std::min(jobs, (chunk + 1) * grain);
    for (Index job = chunk * grain; job < end; ++job) sum(job, thread);
  });
  if (plan.slices == 1) return;
  parallel_for(plan.blocks, plan.blocks, [&](Index begin, Index end) {
    for (Index block = begin; block < end; ++block) write(block);
  });
}

}  // namespace depthwise_nchw16c_pass
}  // namespace convscope
