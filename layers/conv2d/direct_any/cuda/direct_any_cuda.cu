// SPDX-License-Identifier: Apache-2.0
// direct_any_cuda.cu: direct convolution of any problem on a GPU: one thread computes one output, a
// warp one element of dw.
//
// Formula    y[n,k,p,q] = b[k] + sum over c, r, s of
//            x[n, g C/G + c, p stride_h - pad_top + r dilation_h,
//                            q stride_w - pad_left + s dilation_w] w[k,c,r,s]
// Textbook   for n, k, p, q:                                   # one thread
//              for c, r, s: sum += x[n][c][p * stride - pad + r][...] * w[k][c][r][s]
//              y[n][k][p][q] = relu(sum + b[k] + residual)
// Method     Schedule of direct: the loop nest of direct_lesson_cpu.cpp, whose outer loops are the
//            threads. Neighbouring threads have neighbouring columns, so their loads share cache
//            lines. Nothing is kept in shared memory. A thread of backward_data tests which taps
//            reach a pixel of dy. In backward_weight the lanes of a warp take every 32nd pixel of y
//            and add their sums at the end.
// Shapes     x [N,C,H,W], w [K,C/G,R,S], y [N,K,P,Q], row-major, any alignment, f32, f32
//            accumulators
// Supports   f32; every stride, dilation, padding, number of groups and kernel, except problems
//            that `direct` accepts; fewer than 2^25 images, channels, weights, pixels of an image
//            and tiles of 8 pixels, which int counts
// Cost       FLOPs = 2 N K P Q (C/G) R S; bytes = every tensor once if all repeated reads hit the
//            caches; no workspace; bound by loads: two of them for each product
// Numerics   sums of C/G R S products, one after another (`one_chain`); dw: 32 partial sums, added
//            by a warp. The order depends only on the sizes: same bits on each run. Exact on
//            integers
// Backward   dx assigned; dw assigned or added to
// Choices    Problems with register tiles (`direct`) are refused: they need a fraction of the loads
//            there
// Source     V. Dumoulin, F. Visin: A guide to convolution arithmetic for deep learning, 2016,
//            arXiv 1603.07285 (the loops); own work (the kernels)
// Read next  ../../direct/direct_lesson_cpu.cpp, the loop nest; ../../direct/cuda/direct_cuda.cu,
//            which keeps a tile of outputs in registers
#include <cmath>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/shared/cuda/direct_shape.h"

namespace convscope {
namespace {

using Index = std::int64_t;

constexpr int kBlockThreads = 256;

struct AnyPointers {
  const float* x = nullptr;
  const float* w = nullptr;
  const float* b = nullptr;         // may be null
  const float* residual = nullptr;  // may be null
  bool relu = false;
  float* y = nullptr;
};

// ---- kernels ------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kBlockThreads)
    forward_any_kernel(const DirectShape z, Index count, const AnyPointers at) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const int q = static_cast<int>(i % z.q);
    const int p = static_cast<int>(i / z.q % z.p);
    const Index image = i / z.q / z.p;
    const int k = static_cast<int>(image % z.k);
    const Index n = image / z.k;
    const float* w = at.w + static_cast<Index>(k) * z.c_group * z.r * z.s;
    const Index first = n * z.c + static_cast<Index>(k / z.k_group) * z.c_group;
    float sum = 0;
    for (int c = 0; c < z.c_group; ++c) {
      const float* const x = at.x + (first + c) * z.h * z.w;
      for (int r = 0; r < z.r; ++r, w += z.s) {
        const int h = p * z.stride_h - z.pad_top + r * z.dilation_h;
        if (h < 0 || h >= z.h) continue;
        for (int s = 0; s < z.s; ++s) {
          const int column = q * z.stride_w - z.pad_left + s * z.dilation_w;
          if (column >= 0 && column < z.w) sum += x[static_cast<Index>(h) * z.w + column] * w[s];
        }
      }
    }
    if (at.b != nullptr) sum += at.b[k];
    at.y[i] = finished(sum, at.residual, i, at.relu);
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    data_any_kernel(const DirectShape z, Index count, const float* dy, const float* w, float* dx) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const int column = static_cast<int>(i % z.w);
    const int h = static_cast<int>(i / z.w % z.h);
    const Index image = i / z.w / z.h;
    const int channel = static_cast<int>(image % z.c);
    const Index n = image / z.c;
    const int group = channel / z.c_group;
    const int c = channel - group * z.c_group;
    float sum = 0;
    for (int r = 0; r < z.r; ++r) {
      const int at_p = h + z.pad_top - r * z.dilation_h;
      if (at_p < 0 || at_p % z.stride_h != 0 || at_p / z.stride_h >= z.p) continue;
      for (int s = 0; s < z.s; ++s) {
        const int at_q = column + z.pad_left - s * z.dilation_w;
        if (at_q < 0 || at_q % z.stride_w != 0 || at_q / z.stride_w >= z.q) continue;
        const Index pixel = static_cast<Index>(at_p / z.stride_h) * z.q + at_q / z.stride_w;
        for (int k = group * z.k_group; k < (group + 1) * z.k_group; ++k) {
          sum += dy[(n * z.k + k) * z.p * z.q + pixel] *
                 w[((static_cast<Index>(k) * z.c_group + c) * z.r + r) * z.s + s];
        }
      }
    }
    dx[i] = sum;
  }
}

// A warp computes one element of dw.
__global__ void __launch_bounds__(kBlockThreads)
    weight_any_kernel(const DirectShape z, Index count, const float* x, const float* dy,
                      bool accumulate, float* dw) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Index warps = global_threads() / 32;
  for (Index i = global_thread() / 32; i < count; i += warps) {
    const int s = static_cast<int>(i % z.s);
    const int r = static_cast<int>(i / z.s % z.r);
    const int c = static_cast<int>(i / z.s / z.r % z.c_group);
    const int k = static_cast<int>(i / z.s / z.r / z.c_group);
    const int channel = k / z.k_group * z.c_group + c;
    float sum = 0;
    for (int n = 0; n < z.n; ++n) {
      const float* const image = x + (static_cast<Index>(n) * z.c + channel) * z.h * z.w;
      const float* const gradient = dy + (static_cast<Index>(n) * z.k + k) * z.p * z.q;
      for (int pixel = lane; pixel < z.p * z.q; pixel += 32) {
        const int p = pixel / z.q;
        const int h = p * z.stride_h - z.pad_top + r * z.dilation_h;
        const int column = (pixel - p * z.q) * z.stride_w - z.pad_left + s * z.dilation_w;
        if (h < 0 || h >= z.h || column < 0 || column >= z.w) continue;
        sum += gradient[pixel] * image[static_cast<Index>(h) * z.w + column];
      }
    }
    sum = warp_sum(sum);
    if (lane == 0) dw[i] = accumulate ? dw[i] + sum : sum;
  }
}

// ---- launchers ----------------------------------------------------------------------------------

void forward(const Conv2dForwardArgs& args) {
  const Index count = args.problem.y_shape().numel();
  launch(forward_any_kernel, grid_for(count), DirectShape(args.problem), count,
         AnyPointers{.x = static_cast<const float*>(args.x),
                     .w = static_cast<const float*>(args.w),
                     .b = static_cast<const float*>(args.b),
                     .residual = static_cast<const float*>(args.epilogue.residual),
                     .relu = args.epilogue.relu,
                     .y = static_cast<float*>(args.y)});
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Index count = args.problem.x_shape().numel();
  launch(data_any_kernel, grid_for(count), DirectShape(args.problem), count,
         static_cast<const float*>(args.dy), static_cast<const float*>(args.w),
         static_cast<float*>(args.dx));
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Index count = args.problem.w_shape().numel();
  launch(weight_any_kernel, grid_for(count * 32), DirectShape(args.problem), count,
         static_cast<const float*>(args.x), static_cast<const float*>(args.dy), args.accumulate,
         static_cast<float*>(args.dw));
}

// ---- algorithm ----------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  if (has_register_tiles(z)) {
    return Conv2dSupport::no(
        "expects a problem without register tiles, got one that direct accepts");
  }
  return direct_support(z);
}

// A thread executes the steps of its sum one after another, each with two loads and one FMA. All
// threads of a warp wait if one of them has a step, so padding and strides save no time.
Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const bool weight = direction == Direction::backward_weight;
  const bool data = direction == Direction::backward_data;
  const double taps = number(z.r * z.s);
  const double threads = weight ? 32 * number(z.w_shape().numel())
                                : number((data ? z.x_shape() : z.y_shape()).numel());
  const double steps = weight ? number(z.n * ceil_div(z.p() * z.q(), Index{32}))
                              : number(data ? z.k_per_group() : z.c_per_group()) * taps;
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = 2 * threads * steps,
          .cached = 2 * 4 * threads * steps,
          .blocks = std::ceil(threads / kBlockThreads),
          .resident = 2048 / kBlockThreads,  // threads of an SM
          .chain = steps,
          // Starts of the loops over the pixels of an image, tests of taps, starts over a channel.
          .waits = weight ? number(z.n) : data ? taps : number(z.c_per_group()),
          .listed_warps = data ? threads / 32 * taps : 0};
}

std::size_t workspace_bytes(const Conv2dProblem&, Direction) { return 0; }

const Conv2dAlgorithm kAlgorithm{
    .name = "direct_any",
    .device = DeviceType::cuda,
    .idea = "one thread for each output, with any kernel, stride, dilation and groups",
    .paper =
        "Dumoulin, Visin 2016: A guide to convolution arithmetic for deep learning, arXiv "
        "1603.07285",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .error_growth = 8,
    .one_chain = true,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

}  // namespace
}  // namespace convscope
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
