// SPDX-License-Identifier: Apache-2.0
// depthwise_nchw16c.cpp: forward and backward_data of depthwise convolution in NCHW16c. Each block
// of 16 channels of an image is a separate convolution of [H,W,16] with [R,S,16].
//
// Method     The output is split into phases: a phase has the pixels whose inputs have the same
//            pattern. A forward pass has one phase. In backward_data row h of dx reads row p = (h +
//            pad - r dilation) / stride of dy for each r for which p is a whole number. So the rows
//            of one residue modulo the stride are a convolution of stride 1 with some rows of the
//            kernel, rotated by 180 degrees; columns are split in the same way. 3x3 with stride 2
//            has four phases, of 4, 2, 2 and 1 taps. Each pixel of dx is written once. Rows are
//            computed in bands, phase after phase, so that a band's rows of `in` are still in L1
//            when the next strip or phase reads them. Threads share the (image, block of channels,
//            range of rows).
// Cost       FLOPs = 2 N K P Q R S without the taps outside; bytes = the tensors once. For 16
//            channels a pixel of a 3x3 layer is 18 FMAs of 8 lanes (9 cycles with two ports) and
//            128 bytes of x and y. Memory limits large tensors, the FMA ports limit tensors in the
//            caches.
// Numerics   one rounding per FMA in the order of the kernel's rows and columns, in chains
//            (framework/simd/sum_chain.h)
// Choices    kBandPixels 224: 14 KiB of `in` and as much of `out`, plus the rows above and below.
//            Tensors of more than kFarBytes exceed L2 and a core's share of L3, so they are read
//            from memory, and the rows of the next band are prefetched
// Read next  depthwise_nchw16c_simd.cpp, the register tiles; depthwise_nchw16c_weights.cpp, dw
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "framework/ops/gemm/gemm_kernels.h"
#include "framework/parallel.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c_tiles.h"
#include "layers/dispatch/activation_layout.h"

namespace convscope {

constinit IsaTable<DepthwiseNchw16c> depthwise_nchw16c;

namespace depthwise_nchw16c_pass {
namespace {

using Index = std::int64_t;

constexpr Index kBandPixels = 224;
constexpr Index kFarBytes = 8 << 20;
constexpr Index kChunks = 16;        // work for the threads when images x blocks are few
constexpr double kChunkFlops = 2e5;  // a few microseconds of one core

// One dimension of a problem, for backward_data.
struct Dimension {
  Index in, out;  // of x and of y
  Index kernel, stride, dilation, pad;
};
Dimension rows_of(const Conv2dProblem& z) {
  return {z.h, z.p(), z.r, z.stride_h, z.dilation_h, z.pad_top};
}
Dimension columns_of(const Conv2dProblem& z) {
  return {z.w, z.q(), z.s, z.stride_w, z.dilation_w, z.pad_left};
}

DepthwiseAxis forward_axis(const Dimension& z) {
  return {.count = z.out,
          .taps = z.kernel,
          .at = -z.pad,
          .pixel = z.stride,
          .reach = z.dilation,
          .in = z.in,
          .kernel = z.kernel};
}

// Returns the axis for the pixels first, first + stride, ... of dx. The taps are in reverse order,
// because dx uses the flipped kernel.
DepthwiseAxis backward_axis(const Dimension& z, Index first) {
  DepthwiseAxis axis{.count = z.in > first ? ceil_div(z.in - first, z.stride) : 0,
                     .first = first,
                     .step = z.stride,
                     .in = z.out,
                     .kernel = z.kernel};
  const Index together = std::gcd(z.stride, z.dilation);
  const Index tap_step = z.stride / together;
  Index tap = 0;  // first tap whose position in dy is a whole number
  while (tap < std::min(tap_step, z.kernel) && (first + z.pad - tap * z.dilation) % z.stride != 0) {
    ++tap;
  }
  if (tap == std::min(tap_step, z.kernel)) return axis;  // none
  axis.taps = (z.kernel - 1 - tap) / tap_step + 1;
  axis.tap = tap + (axis.taps - 1) * tap_step;
  axis.tap_step = -tap_step;
  axis.reach = z.dilation / together;
  axis.at = (first + z.pad - axis.tap * z.dilation) / z.stride;
  return axis;
}

// The values of a pass that all blocks of channels share.
struct DepthwisePass {
  const Conv2dProblem& z;
  const DepthwiseAxis* rows;
  Index row_phases;
  const DepthwiseAxis* columns;
  Index column_phases;
  Index in_plane, out_plane, out_w;  // in floats, floats, pixels
};

struct Tensors {
  const float* in;
  const float* w;  // prepared
  const float* b = nullptr;
  const float* residual = nullptr;
  bool relu = false;
  float most = 0;
  float* out;
};

void run(const DepthwisePass& pass, const Tensors& tensors) {
  const Conv2dProblem& z = pass.z;
  const auto rows = depthwise_nchw16c.get().rows;
  const Index blocks = ceil_div(z.k, kChannelBlock);
  const Index taps = z.r * z.s;
  const Index steps = pass.rows[0].count;  // rows of the first phase, which has the most
  const double flops = 2.0 * static_cast<double>(kChannelBlock * z.p() * z.q() * taps);
  const Index parts = std::clamp<Index>(
      std::min(ceil_div(kChunks, z.n * blocks), static_cast<Index>(flops / kChunkFlops)), 1, steps);
  const Index band = std::max<Index>(1, kBandPixels / pass.out_w);
  const Index bytes =
      z.n * blocks * (pass.in_plane + pass.out_plane) * static_cast<Index>(sizeof(float));
  const Index ahead = bytes > kFarBytes ? band * pass.rows[0].pixel : 0;
  const auto grain = static_cast<Index>(kChunkFlops * static_cast<double>(parts) / flops) + 1;
  parallel_for(z.n * blocks * parts, grain, [&](Index job, Index job_end) {
    for (; job < job_end; ++job) {
      const Index plane = job / parts;  // n K/16 + block
      const Index channel = plane % blocks * kChannelBlock;
      std::array<float, kChannelBlock> last_start{};
      DepthwiseBlock block;
      block.in = tensors.in + plane * pass.in_plane;
      block.w = tensors.w + channel * taps;
      if (tensors.b != nullptr) {
        block.start = tensors.b + channel;
        if (z.k - channel < kChannelBlock) {
          std::copy_n(block.start, z.k - channel, last_start.data());
          block.start = last_start.data();
        }
      }
      block.relu = tensors.relu;
      block.most = tensors.most;
      block.out = tensors.out + plane * pass.out_plane;
      if (tensors.residual != nullptr) block.residual = tensors.residual + plane * pass.out_plane;
      const Index end = (job % parts + 1) * steps / parts;
      for (Index first = job % parts * steps / parts; first < end; first += band) {
        for (Index i = 0; i < pass.row_phases; ++i) {
          const Index last = std::min({first + band, end, pass.rows[i].count});
          for (Index j = 0; j < pass.column_phases && first < last; ++j) {
            const bool reads_first = i == 0 && j == 0;
            rows({.h = pass.rows[i],
                  .w = pass.columns[j],
                  .out_w = pass.out_w,
                  .ahead = reads_first ? ahead : 0},
                 block, first, last);
          }
        }
      }
    }
  });
}

}  // namespace

Conv2dSupport supports(const Conv2dProblem& z) {
  if (z.k_per_group() != 1) {
    return Conv2dSupport::no(
        cat("expects one kernel for each channel in layout nchw16c, got a multiplier of ",
            z.k_per_group()));
  }
  return {};
}

bool unrolled(const Conv2dProblem& z, Direction direction) {
  if (z.stride_w > 2 || (z.s != 3 && z.s != 5 && z.s != 7)) return false;
  const bool dilated = z.dilation_w == 2 && z.s == 3 && z.stride_w == 1;
  if (z.dilation_w != 1 && !dilated) return false;
  return direction != Direction::backward_weight || z.r == z.s;
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const double blocks = number(z.n * ceil_div(z.k, kChannelBlock));
  const double filled = number(z.k) / number(round_up(z.k, kChannelBlock));
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes() / filled,
          .issued = 2 * blocks * rows_inside(z) * columns_inside(z) * number(kChannelBlock),
          .tiles = blocks * number(z.p()),
          .listed = blocks,
          .prepared = number(round_up(z.k, kChannelBlock) * z.r * z.s),
          .schedule = !unrolled(z, direction) ? "nchw16c_any_kernel"
                      : z.stride_w > 1        ? (z.s == 3   ? "nchw16c_3_stride_2"
                                                 : z.s == 5 ? "nchw16c_5_stride_2"
                                                            : "nchw16c_7_stride_2")
                      : z.s == 3              ? "nchw16c_3"
                      : z.s == 5              ? "nchw16c_5"
                                              : "nchw16c_7"};
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  return static_cast<std::size_t>(round_up(z.k, kChannelBlock) * z.r * z.s) * sizeof(float);
}

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const auto* const w = static_cast<const float*>(args.w);
  auto* const prepared = static_cast<float*>(args.prepared);
  const auto transpose = gemm_kernels.get().transpose;
  const Index taps = z.r * z.s;
  for (Index k = 0; k < z.k; k += kChannelBlock) {
    const Index count = std::min(kChannelBlock, z.k - k);
    if (count < kChannelBlock) std::fill_n(prepared + k * taps, kChannelBlock * taps, 0.0f);
    transpose(w + k * taps, taps, count, taps, prepared + k * taps, kChannelBlock);
  }
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DepthwiseAxis rows = forward_axis(rows_of(z));
  const DepthwiseAxis columns = forward_axis(columns_of(z));
  run({.z = z,
       .rows = &rows,
       .row_phases = 1,
       .columns = &columns,
       .column_phases = 1,
       .in_plane = z.h * z.w * kChannelBlock,
       .out_plane = z.p() * z.q() * kChannelBlock,
       .out_w = z.q()},
      {.in = static_cast<const float*>(args.x),
       .w = static_cast<const float*>(args.prepared),
       .b = static_cast<const float*>(args.b),
       .residual = static_cast<const float*>(args.epilogue.residual),
       .relu = args.epilogue.relu,
       .most = args.epilogue.most,
       .out = static_cast<float*>(args.y)});
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  auto* const rows = static_cast<DepthwiseAxis*>(args.workspace);
  DepthwiseAxis* const columns = rows + z.stride_h;
  for (Index i = 0; i < z.stride_h; ++i) rows[i] = backward_axis(rows_of(z), i);
  for (Index i = 0; i < z.stride_w; ++i) columns[i] = backward_axis(columns_of(z), i);
  run({.z = z,
       .rows = rows,
       .row_phases = z.stride_h,
       .columns = columns,
       .column_phases = z.stride_w,
       .in_plane = z.p() * z.q() * kChannelBlock,
       .out_plane = z.h * z.w * kChannelBlock,
       .out_w = z.w},
      {.in = static_cast<const float*>(args.dy),
       .w = static_cast<const float*>(args.prepared),
       .out = static_cast<float*>(args.dx)});
}

}  // namespace depthwise_nchw16c_pass
}  // namespace convscope
