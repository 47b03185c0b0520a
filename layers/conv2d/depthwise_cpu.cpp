// SPDX-License-Identifier: Apache-2.0
// depthwise_cpu.cpp: convolution with one input channel for each group: every output plane is one
// input plane under one small kernel, computed on the NCHW planes as they lie.
//
// Formula    y[n,k,p,q] = b[k] + sum over r, s of w[k,0,r,s] x[n, k / M, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], M = K/C, x = 0 outside
// Textbook   for n, k, p, q:
//              y[n,k,p,q] = b[k]
//              for r, s: y[n,k,p,q] += w[k,0,r,s] * x[n,k/M,p*stride+r-pad,q*stride+s-pad]
// Plan       lanes along a row. 4 rows of y at once: each row of x is loaded S times, shifted, and
//            each load is multiplied into every sum it belongs to (36 FMAs on 18 loads for 3x3).
//            Borders are masks of the loads and rows left out, so nothing is copied or padded.
//            AVX-512 loads a row that fits one vector once and shifts it in the register for each s.
//            Stride 2 loads two vectors and takes their even and odd elements.
//            backward_data: stride 1 is the forward pass with the kernel turned; stride 2 computes
//            the four parities of (h, w) from the same loads of dy and weaves them together.
//            backward_weight: R S vector sums stay in registers over whole rows (as many kernel rows
//            at a time as registers allow), over all planes of a slice, and are added up across
//            lanes once. Threads take planes; backward_weight output channels and slices of N.
// Shapes     x [N,C,H,W], w [K,1,R,S], y [N,K,P,Q], f32 row-major, any alignment; sums in f32
// Supports   f32 with C/G = 1; any kernel, stride, dilation, padding and multiplier M. Unrolled:
//            3x3, 5x5, 7x7 with stride 1 (any dilation) or 2 (no dilation); else plain loops
// Cost       FLOPs = 2 N K P Q R S; bytes = the three tensors once; workspace = dw for each slice
//            (backward_weight), else none. 3x3: 18 FLOPs for 8 bytes of x and y, so memory-bound
//            beyond the caches of every machine above 2 FLOPs/byte
// Numerics   one rounding per FMA in the order of (r, s) (R S <= 49 terms); backward_weight sums
//            lanes over a slice, then lanes, then slices in order. Same bits on each run and for any
//            number of threads; exact on integers below 2^24
// Backward   dx assigned (channels of a multiplier one after the other); dw assigned or added to
// Choices    4 rows: loads fall from S R to S (R + 3) / 4 for each vector of sums; 3x3 needs 9 taps
//            + 4 sums + 3 loads = 16 registers, all that AVX2 has
//            rest of a row of up to 8 pixels: an 8-lane vector, half the cost of a 16-lane one
//            kSlices 16: chunks for the threads when there are few channels
// Source     L. Sifre 2014: Rigid-Motion Scattering (thesis); P. Zhang, E. Lo, B. Lu: High
//            Performance Depthwise and Pointwise Convolutions on Mobile Devices, AAAI 2020
// Read next  reference_cpu.cpp; depthwise_simd.cpp, the three plane kernels
#include <algorithm>

#include "framework/memory.h"
#include "framework/parallel.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/depthwise_planes.h"
#include "layers/conv2d/epilogue.h"

namespace convscope {

constinit IsaTable<DepthwiseKernels> depthwise_kernels;

namespace {

using Index = std::int64_t;

constexpr Index kSlices = 16;
constexpr double kChunkFlops = 2e5;  // a few microseconds of one core

DepthwiseMap map_of(const Conv2dProblem& z) {
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

// Planes handed to a thread at a time.
Index grain_of(const Conv2dProblem& z) {
  const double flops = 2.0 * static_cast<double>(z.p() * z.q() * z.r * z.s);
  return static_cast<Index>(kChunkFlops / flops) + 1;
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DepthwiseMap map = map_of(z);
  const DepthwiseKernels& kernels = depthwise_kernels.get();
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const w = static_cast<const float*>(args.w);
  const auto* const b = static_cast<const float*>(args.b);
  auto* const y = static_cast<float*>(args.y);
  const FusedEpilogue epilogue(args);
  const Index multiplier = z.k_per_group();
  parallel_for(z.n * z.k, grain_of(z), [&](Index begin, Index end) {
    for (Index plane = begin; plane < end; ++plane) {  // n K + k = (n C + c) M + m
      const Index k = plane % z.k;
      kernels.forward(map, x + plane / multiplier * z.h * z.w, w + k * z.r * z.s,
                      b == nullptr ? 0.0f : b[k], false, y + plane * map.p * map.q);
      epilogue.finish(y + plane * map.p * map.q, 1, map.p * map.q, 0);
    }
  });
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DepthwiseMap map = map_of(z);
  const DepthwiseKernels& kernels = depthwise_kernels.get();
  const auto* const dy = static_cast<const float*>(args.dy);
  const auto* const w = static_cast<const float*>(args.w);
  auto* const dx = static_cast<float*>(args.dx);
  const Index multiplier = z.k_per_group();
  parallel_for(
      z.n * z.c, std::max<Index>(1, grain_of(z) / multiplier), [&](Index begin, Index end) {
        for (Index plane = begin; plane < end; ++plane) {  // n C + c
          for (Index m = 0; m < multiplier; ++m) {
            const Index k = plane % z.c * multiplier + m;
            kernels.backward_data(map, dy + (plane * multiplier + m) * map.p * map.q,
                                  w + k * z.r * z.s, /*accumulate=*/m > 0, dx + plane * z.h * z.w);
          }
        }
      });
}

Index slices_of(const Conv2dProblem& z) {
  return std::clamp<Index>((kSlices + z.k - 1) / z.k, 1, std::max<Index>(1, z.n));
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const DepthwiseMap map = map_of(z);
  const DepthwiseKernels& kernels = depthwise_kernels.get();
  const auto* const x = static_cast<const float*>(args.x);
  const auto* const dy = static_cast<const float*>(args.dy);
  auto* const dw = static_cast<float*>(args.dw);
  auto* const partial = static_cast<float*>(args.workspace);  // [slices, K, R S]
  const Index multiplier = z.k_per_group();
  const Index taps = z.r * z.s;
  const Index slices = slices_of(z);
  const Index grain = std::max<Index>(1, grain_of(z) / std::max<Index>(1, z.n / slices));
  parallel_for(slices * z.k, grain, [&](Index begin, Index end) {
    for (Index job = begin; job < end; ++job) {  // slice K + k
      const Index k = job % z.k;
      const Index slice = job / z.k;
      const Index n = slice * z.n / slices;
      std::fill_n(partial + job * taps, taps, 0.0f);
      kernels.backward_weight(map, x + (n * z.c + k / multiplier) * z.h * z.w, z.c * z.h * z.w,
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

// ---- card --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& problem, Direction) {
  if (problem.dtype != DType::f32) {
    return Conv2dSupport::no(cat("expects elements of type f32, got ", name_of(problem.dtype)));
  }
  if (problem.c_per_group() != 1) {
    return Conv2dSupport::no(cat("expects one input channel for each group, got ",
                                 problem.c_per_group(), " in each of ", problem.groups));
  }
  return {};
}

bool unrolled(const Conv2dProblem& z) {
  if (z.r != z.s || (z.r != 3 && z.r != 5 && z.r != 7) || z.stride_h != z.stride_w) return false;
  return z.stride_h == 1 || (z.stride_h == 2 && z.dilation_h == 1 && z.dilation_w == 1);
}

Conv2dCost cost(const Conv2dProblem& problem, Direction) {
  return {.flops = problem.nominal_flops(),
          .bytes = problem.nominal_bytes(),
          .peak_share = unrolled(problem) ? 0.65 : 0.1};
}

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  return static_cast<std::size_t>(slices_of(z) * z.k * z.r * z.s) * sizeof(float);
}

const Conv2dAlgorithm kCard{
    .name = "depthwise",
    .device = DeviceType::cpu,
    .idea = "one kernel slides over one plane: neighbouring pixels in the vector lanes",
    .paper = "Sifre 2014: Rigid-Motion Scattering for Image Classification (thesis)",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 4,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kCard)
