// SPDX-License-Identifier: Apache-2.0
// depthwise_cpu.cpp: convolution with one input channel for each group. Each output plane is one
// input plane convolved with one small kernel, computed on NCHW planes without a copy.
//
// Formula    y[n,k,p,q] = b[k] + sum over r, s of w[k,0,r,s] x[n, k / M, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], M = K/C, x = 0 outside
// Textbook   for n, k, p, q:
//              y[n,k,p,q] = b[k]
//              for r, s: y[n,k,p,q] += w[k,0,r,s] * x[n,k/M,p*stride+r-pad,q*stride+s-pad]
// Method     Lanes are pixels of a row. 7 rows of y are computed at once (4 with 16 registers):
//            each row of x is loaded once for each of its S shifts and multiplied into every
//            accumulator that uses it. Borders are masked loads and skipped rows, so nothing is
//            copied or padded. With AVX-512 two neighbouring vectors are computed together, and the
//            loads that both need are shifted in registers. A row that fits into one or two vectors
//            is loaded once, and its masks are computed once for many planes. With stride 2 two
//            vectors are loaded and split into even and odd elements. backward_data: with stride 1
//            it is the forward pass with the kernel rotated by 180 degrees; with stride 2 the four
//            parities of (h, w) are computed from the same loads of dy and interleaved.
//            backward_weight: R S accumulator vectors (as many kernel rows at a time as registers
//            allow) are kept over all planes of a slice and reduced across lanes once. Lines are
//            prefetched in software, because the hardware's prefetcher stops at a page, and does
//            not predict that backward_weight's next plane is C planes further. Threads share
//            planes, or in backward_weight output channels and slices of N. NCHW16c images
//            (`layout=nchw16c`) have separate kernels with 16 channels in the lanes:
//            depthwise_nchw16c.cpp.
// Shapes     x [N,C,H,W], w [K,1,R,S], y [N,K,P,Q], f32 row-major, any alignment; f32 accumulators.
//            NCHW16c: x [N,C/16,H,W,16], y [N,K/16,P,Q,16], w packed to [K/16,R,S,16]
// Supports   f32 with C/G = 1; any kernel, stride, dilation, padding and multiplier M. Unrolled:
//            3x3, 5x5, 7x7 with stride 1 (any dilation) or 2 (no dilation); else plain loops.
//            NCHW16c: one kernel for each channel
// Cost       FLOPs = 2 N K P Q R S; bytes = the three tensors once; workspace = dw for each slice
//            (backward_weight), else none. 3x3: 18 FLOPs for 8 bytes of x and y, so beyond the
//            caches it is memory-bound on every machine above 2 FLOPs/byte
// Numerics   one rounding per FMA in the order of (r, s) (R S <= 49 terms); backward_weight sums
//            lanes over a slice, then lanes, then slices in order, in chains
//            (framework/simd/sum_chain.h). Same bits on each run and for any number of threads;
//            exact on integers below 2^24
// Backward   dx assigned (with a multiplier, its channels are added in order); dw assigned or added
//            to
// Choices    7 rows: the loads for each vector of results fall from S R to S (R + 6) / 7. 3x3 needs
//            9 taps + 14 accumulators + 6 shifted vectors = 29 of AVX-512's 32 registers, and 7
//            divides the maps of ImageNet. AVX2 has 4 rows: 9 + 4 + 3 = 16 registers. The last
//            pixels of a row, up to 8, take an 8-lane vector, which costs half as much as a 16-lane
//            vector. kSlices 16: enough work for the threads when there are few channels
// Source     L. Sifre 2014: Rigid-Motion Scattering (thesis); P. Zhang, E. Lo, B. Lu: High
//            Performance Depthwise and Pointwise Convolutions on Mobile Devices, AAAI 2020
// Read next  reference_cpu.cpp; depthwise_forward_simd.cpp and depthwise_backward_simd.cpp;
//            depthwise_nchw16c.cpp
#include <algorithm>

#include "framework/memory/memory.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/counts.h"
#include "layers/conv2d/depthwise/cpu/depthwise_nchw16c.h"
#include "layers/conv2d/depthwise/cpu/depthwise_planes.h"
#include "layers/conv2d/epilogue.h"
#include "layers/conv2d/shared/tiles.h"
#include "layers/dispatch/limits/workspace_limit.h"

namespace convscope {

constinit IsaTable<DepthwiseForward> depthwise_forward;
constinit IsaTable<DepthwiseBackward> depthwise_backward;

DepthwiseMap depthwise_map(const Conv2dProblem& z) {
  return {.h = z.h,
          .w = z.w,
          .r = z.r,
          .s = z.s,
          .p = z.p(),
          .q = z.q(),
          .stride_h = z.stride_h,
          .stride_w = z.stride_w,
          .dilation_h = z.dilation_h,
          .dilation_w = z.dilation_w,
          .pad_top = z.pad_top,
          .pad_left = z.pad_left};
}

namespace {

using Index = std::int64_t;

constexpr Index kSlices = 16;
constexpr double kChunkFlops = 2e5;  // a few microseconds of one core
constexpr Index kPlanesAtOnce = 8;   // while they are in L1 or L2, before the epilogue

bool is_nchw16c(const Conv2dProblem& z) { return z.layout == ActivationLayout::nchw16c; }

// Returns the number of planes that a thread takes at a time.
Index grain_of(const Conv2dProblem& z) {
  const double flops = 2.0 * static_cast<double>(z.p() * z.q() * z.r * z.s);
  return static_cast<Index>(kChunkFlops / flops) + 1;
}

// Calls body(first plane, first channel, count) for each image that [begin, end) overlaps.
template <class Body>
void for_runs(Index begin, Index end, Index channels, Body body) {
  for (Index plane = begin; plane < end;) {
    const Index count = std::min(end - plane, channels - plane % channels);
    body(plane, plane % channels, count);
    plane += count;
  }
}

void forward(const Conv2dForwardArgs& args) {
  if (is_nchw16c(args.problem)) return depthwise_nchw16c_pass::forward(args);
  const Conv2dProblem& z = args.problem;
  const DepthwiseMap map = depthwise_map(z);
  const auto planes = depthwise_forward.get().planes;
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const w = static_cast<const float*>(args.w);
  const auto* const b = static_cast<const float*>(args.b);
  auto* const y = static_cast<float*>(args.y);
  const FusedEpilogue epilogue(args);
  const Index multiplier = z.k_per_group();
  const Index most = multiplier == 1 ? kPlanesAtOnce : 1;  // planes of y that read planes in order
  parallel_for(z.n * z.k, grain_of(z), [&](Index begin, Index end) {
    for_runs(begin, end, z.k, [&](Index first, Index channel, Index all) {
      for (Index done = 0; done < all; done += most) {  // n K + k = (n C + c) M + m
        const Index count = std::min(most, all - done);
        const Index plane = first + done;
        const Index k = channel + done;
        float* const to = y + plane * map.p * map.q;
        planes(map, x + plane / multiplier * z.h * z.w, w + k * z.r * z.s,
               b == nullptr ? nullptr : b + k, false, count, to);
        epilogue.finish(to, 1, count * map.p * map.q, 0);
      }
    });
  });
}

// Returns the convolution from dy to dx for stride 1, with the kernel rotated by 180 degrees.
DepthwiseMap rotated(const DepthwiseMap& z) {
  DepthwiseMap back = z;
  back.h = z.p;
  back.w = z.q;
  back.p = z.h;
  back.q = z.w;
  back.pad_top = (z.r - 1) * z.dilation_h - z.pad_top;
  back.pad_left = (z.s - 1) * z.dilation_w - z.pad_left;
  back.rotated = true;
  return back;
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  if (is_nchw16c(args.problem)) return depthwise_nchw16c_pass::backward_data(args);
  const Conv2dProblem& z = args.problem;
  const DepthwiseMap map = depthwise_map(z);
  const DepthwiseMap back = rotated(map);
  const bool as_forward = z.stride_h == 1 && z.stride_w == 1;
  const auto* const dy = static_cast<const float*>(args.dy);
  const auto* const w = static_cast<const float*>(args.w);
  auto* const dx = static_cast<float*>(args.dx);
  const Index multiplier = z.k_per_group();
  const auto run = [&](const float* from, const float* taps, bool accumulate, Index count,
                       float* to) {
    if (as_forward)
      return depthwise_forward.get().planes(back, from, taps, nullptr, accumulate, count, to);
    depthwise_backward.get().data(map, from, taps, accumulate, count, to);
  };
  parallel_for(z.n * z.c, std::max<Index>(1, grain_of(z) / multiplier),
               [&](Index begin, Index end) {
                 for_runs(begin, end, z.c, [&](Index first, Index channel, Index all) {
                   if (multiplier == 1) {
                     return run(dy + first * map.p * map.q, w + channel * z.r * z.s, false, all,
                                dx + first * z.h * z.w);
                   }
                   for (Index i = 0; i < all; ++i) {  // n C + c
                     for (Index m = 0; m < multiplier; ++m) {
                       run(dy + ((first + i) * multiplier + m) * map.p * map.q,
                           w + ((channel + i) * multiplier + m) * z.r * z.s, /*accumulate=*/m > 0,
                           1, dx + (first + i) * z.h * z.w);
                     }
                   }
                 });
               });
}

Index slices_of(const Conv2dProblem& z) {
  return std::clamp<Index>((kSlices + z.k - 1) / z.k, 1, z.n);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  if (is_nchw16c(args.problem)) return depthwise_nchw16c_pass::backward_weight(args);
  const Conv2dProblem& z = args.problem;
  const DepthwiseMap map = depthwise_map(z);
  const auto weight = depthwise_backward.get().weight;
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const dy = static_cast<const float*>(args.dy);
  auto* const dw = static_cast<float*>(args.dw);
  auto* const partial = static_cast<float*>(args.workspace);  // [slices, K, R S]
  const Index multiplier = z.k_per_group();
  const Index taps = z.r * z.s;
  const Index slices = slices_of(z);
  const Index grain = std::max<Index>(1, grain_of(z) / (z.n / slices));
  parallel_for(slices * z.k, grain, [&](Index begin, Index end) {
    for (Index job = begin; job < end; ++job) {  // slice K + k
      const Index k = job % z.k;
      const Index slice = job / z.k;
      const Index n = slice * z.n / slices;
      std::fill_n(partial + job * taps, taps, 0.0f);
      weight(map, x + (n * z.c + k / multiplier) * z.h * z.w, z.c * z.h * z.w,
             dy + (n * z.k + k) * map.p * map.q, z.k * map.p * map.q,
             (slice + 1) * z.n / slices - n, partial + job * taps);
    }
  });
  for (Index i = 0; i < z.k * taps; ++i) {
    float sum = args.accumulate ? dw[i] : 0.0f;
    for (Index slice = 0; slice < slices; ++slice) sum += partial[slice * z.k * taps + i];
    dw[i] = sum;
  }
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& problem, Direction) {
  if (problem.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(problem.dtype)));
  }
  if (problem.c_per_group() != 1) {
    return Conv2dSupport::no(cat("expects one input channel for each group, got ",
                                 problem.c_per_group(), " in each of ", problem.groups));
  }
  if (is_nchw16c(problem)) return depthwise_nchw16c_pass::supports(problem);
  return {};
}

bool unrolled(const Conv2dProblem& z) {
  if (z.r != z.s || (z.r != 3 && z.r != 5 && z.r != 7) || z.stride_h != z.stride_w) return false;
  return z.stride_h == 1 || (z.stride_h == 2 && z.dilation_h == 1 && z.dilation_w == 1);
}

// In forward and backward_data one call of a kernel function computes all planes of a thread, or
// only one plane if there is a channel multiplier.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  if (is_nchw16c(z)) return depthwise_nchw16c_pass::cost(z, direction);
  const bool weight = direction == Direction::backward_weight;
  const Index lanes = tile_kernels.get().lanes;
  const double vectors = number(ceil_div(z.q(), lanes));
  const double planes = number(z.n * z.k);
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = 2 * planes * rows_inside(z) * number(z.s) * vectors * number(lanes),
          .loads = planes * number(z.h) * number(z.s) * vectors,
          .tiles = planes,
          .listed = planes * number(z.p()),
          .chunks = number(weight ? slices_of(z) * z.k : z.n * z.k),
          .schedule = !unrolled(z)     ? "any_kernel"
                      : z.stride_w > 1 ? (z.s == 3   ? "3x3_stride_2"
                                          : z.s == 5 ? "5x5_stride_2"
                                                     : "7x7_stride_2")
                      : z.s == 3       ? "3x3"
                      : z.s == 5       ? "5x5"
                                       : "7x7"};
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (is_nchw16c(z)) return depthwise_nchw16c_pass::workspace_bytes(z, direction);
  if (direction != Direction::backward_weight) return 0;
  return static_cast<std::size_t>(slices_of(z) * z.k * z.r * z.s) * sizeof(float);
}

// NCHW kernels read w without preparation.
std::size_t prepared_bytes(const Conv2dProblem& z, Direction direction) {
  return is_nchw16c(z) ? depthwise_nchw16c_pass::prepared_bytes(z, direction) : 0;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "depthwise",
    .device = DeviceType::cpu,
    .idea = "one kernel slides over one plane: neighbouring pixels in the vector lanes",
    .paper = "Sifre 2014: Rigid-Motion Scattering for Image Classification (thesis)",
    .supports = with_workspace_limit<supports, workspace_bytes>,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = depthwise_nchw16c_pass::prepare_weights,
    .error_growth = 8,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_nchw16c_layout = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
