// SPDX-License-Identifier: Apache-2.0
// depthwise_nhwc_cuda.cu: depthwise convolution of fp16/bf16 in NHWC. A thread reads a
// piece, that is, eight channels of a pixel (16 bytes), at once.
//
// Formula    y[n,c,p,q] = b[c] + sum over r, s of w[c,r,s] x[n, c, p stride_h - pad_top +
//            r dilation_h, q stride_w - pad_left + s dilation_w], x = 0 outside
// Textbook   for each pixel (n,p,q), for each piece of 8 channels:        # a thread: 4 pixels
//              for (r,s): sum[0..7] += w[r][s][piece] * x[n][p + r][q + s][piece]
//            dx: for each pixel of x: sum over the pixels of dy that used it, in the order of (r,s)
//            dw[r][s][piece] = sum over all pixels of x[..][piece] * dy[..][piece]
// Method     3x3 with stride 1 or 2 has separate kernels, which read each x and dy about once:
//              forward, backward_data       depthwise_nhwc_slide_cuda.cu
//              backward_weight, and both    depthwise_nhwc_both_cuda.cu
//            For other kernels prepare_weights rounds w to fp16/bf16 [R S][Cp], so that one tap of
//            eight channels (a piece) is 16 bytes.
//            forward          a thread has four neighbours of a row of y, which share loads in L1
//            backward_data    stride 1: as forward, with w rotated; else a thread for each pixel of
//                             dx
//            backward_weight  a thread keeps one piece with up to nine taps in registers and loops
//                             over pixels (framework/cuda/channel_sums.cuh); a small launch adds
//                             the partial sums
// Shapes     x, dx [N,1,H,W,Cp], y, dy [N,1,P,Q,Cp] fp16/bf16, 16-byte aligned; w, dw [C,1,R,S], b
//            [C] f32; sums in f32
// Supports   layout nhwc with fp16/bf16 and weights of f32; C = K = groups; kernels up to
//            15x15; every stride, dilation and padding
// Cost       FLOPs = 2 N C P Q R S; bytes = x, y and w; workspace = partial dw. Memory-bound
// Numerics   operands rounded to fp16/bf16, products and sums in f32: R S terms one after another;
//            of dw 64 pixels in f32, then trees and doubles. Same bits on each run; exact on
//            integers up to 2^8 (bf16) or 2^11 (f16) while sums stay below 2^24
// Backward   dx assigned; dw assigned or added to
// Choices    9 taps of dw at once: 72 accumulators of a thread fit into registers
// Source     L. Sifre: Rigid-Motion Scattering for Image Classification, 2014 (thesis)
// Read next  depthwise_lesson_cuda.cu; depthwise_nhwc_slide_cuda.cu
#include <algorithm>
#include <cmath>

#include "framework/cuda/channel_sums.cuh"
#include "framework/precision.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/depthwise/cuda/depthwise_nhwc_3x3.h"
#include "layers/conv2d/epilogue.cuh"
#include "layers/plan/joint_backward.h"

namespace convscope {
namespace {

constexpr int kColumns = 4;  // pixels of a thread
constexpr int kTaps = 9;     // taps of dw that are accumulated at once
constexpr int kMaxTaps = 15;

struct DepthwiseNhwcShape {
  int h, w, p, q;  // sizes of the tensors that are read and written
  int r, s, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
  int pieces;
  FastDivisor by_pieces = {}, by_strips = {}, by_p = {};
  std::int64_t count = 0;  // strips times pieces, one thread for each
};

int narrow(std::int64_t size) { return static_cast<int>(size); }

// Returns the sizes of the tensor that is read and of the tensor that is written.
DepthwiseNhwcShape sizes_of(const Conv2dProblem& z, bool backward, int columns) {
  DepthwiseNhwcShape out{.h = narrow(backward ? z.p() : z.h),
            .w = narrow(backward ? z.q() : z.w),
            .p = narrow(backward ? z.h : z.p()),
            .q = narrow(backward ? z.w : z.q()),
            .r = narrow(z.r),
            .s = narrow(z.s),
            .stride_h = narrow(z.stride_h),
            .stride_w = narrow(z.stride_w),
            .pad_h = narrow(z.pad_top),
            .pad_w = narrow(z.pad_left),
            .dilation_h = narrow(z.dilation_h),
            .dilation_w = narrow(z.dilation_w),
            .pieces = narrow(ceil_div(z.c, std::int64_t{kPieceLanes}))};
  const int strips = ceil_div(out.q, columns);
  out.by_pieces = FastDivisor(out.pieces);
  out.by_strips = FastDivisor(strips);
  out.by_p = FastDivisor(out.p);
  out.count = z.n * out.p * strips * out.pieces;
  return out;
}

struct Place {
  int piece, strip, p, n;
};
__device__ inline Place place_of(const DepthwiseNhwcShape& z, std::int64_t at) {
  const int pixel = z.by_pieces.divide(static_cast<int>(at));
  const int line = z.by_strips.divide(pixel);
  const int n = z.by_p.divide(line);
  return {static_cast<int>(at) - pixel * z.pieces, pixel - line * z.by_strips.d,
          line - n * z.by_p.d, n};
}

__device__ inline bool is_in(int at, int size) {
  return static_cast<unsigned>(at) < static_cast<unsigned>(size);
}

struct Finish {  // y = relu(sum + b + residual), each part optional
  const float* bias;
  const uint4* residual;
  bool relu;
  int channels;
};

template <class Half>
__device__ inline uint4 finish(const Finish& z, float (&sum)[kPieceLanes], int piece,
                               std::int64_t at) {
  if (z.bias != nullptr) {
#pragma unroll
    for (int l = 0; l < kPieceLanes; ++l) {
      const int c = piece * kPieceLanes + l;
      if (c < z.channels) sum[l] += z.bias[c];
    }
  }
  if (z.residual != nullptr) {
    float beside[kPieceLanes];
    floats_of_piece<Half>(z.residual[at], beside);
#pragma unroll
    for (int l = 0; l < kPieceLanes; ++l) sum[l] += beside[l];
  }
#pragma unroll
  for (int l = 0; l < kPieceLanes; ++l) sum[l] = finished(sum[l], z.relu);
  return piece_of_floats<Half>(sum);
}

// Rounds w [C][R S] and stores it as taps [R S][pieces]. With `rotated`, the taps of w are in
// reverse order, so tap (r,s) is tap (R-1-r, S-1-s) of w.
template <class Half>
__global__ void round_weights(const float* w, int channels, int pieces, int taps, bool rotated,
                              uint4* to) {
  const int at = static_cast<int>(global_thread());
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (at >= taps * pieces) return;
  const int tap = at / pieces;
  const int piece = at - tap * pieces;
  const int from = rotated ? taps - 1 - tap : tap;
  float v[kPieceLanes];
#pragma unroll
  for (int l = 0; l < kPieceLanes; ++l) {
    const int c = piece * kPieceLanes + l;
    v[l] = c < channels ? w[static_cast<std::int64_t>(c) * taps + from] : 0.0f;
  }
  to[at] = piece_of_floats<Half>(v);
}

template <class Half>
__device__ inline void multiply_add(float (&sum)[kPieceLanes], const float (&w)[kPieceLanes],
                                    const float (&x)[kPieceLanes]) {
#pragma unroll
  for (int l = 0; l < kPieceLanes; ++l) sum[l] += w[l] * x[l];
}

template <class Half>
__global__ void __launch_bounds__(kThreads)
    slide_kernel(const uint4* x, const uint4* taps, DepthwiseNhwcShape z, Finish end, uint4* y) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t i = global_thread(); i < z.count; i += global_threads()) {
    const Place at = place_of(z, i);
    const int q = at.strip * kColumns;
    float sums[kColumns][kPieceLanes] = {};
    for (int r = 0; r < z.r; ++r) {
      const int h = at.p * z.stride_h - z.pad_h + r * z.dilation_h;
      if (!is_in(h, z.h)) continue;
      const uint4* const line =
          x + (static_cast<std::int64_t>(at.n) * z.h + h) * z.w * z.pieces + at.piece;
      const auto load = [&](int w) {
        return is_in(w, z.w) ? line[static_cast<std::int64_t>(w) * z.pieces]
                             : make_uint4(0, 0, 0, 0);
      };
      for (int s = 0; s < z.s; ++s) {
        float w[kPieceLanes];
        floats_of_piece<Half>(taps[(r * z.s + s) * z.pieces + at.piece], w);
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          float v[kPieceLanes];
          floats_of_piece<Half>(load((q + j) * z.stride_w - z.pad_w + s * z.dilation_w), v);
          multiply_add<Half>(sums[j], w, v);
        }
      }
    }
    const std::int64_t to =
        ((static_cast<std::int64_t>(at.n) * z.p + at.p) * z.q + q) * z.pieces + at.piece;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (q + j >= z.q) break;
      const std::int64_t here = to + static_cast<std::int64_t>(j) * z.pieces;
      y[here] = finish<Half>(end, sums[j], at.piece, here);
    }
  }
}

// Computes dx for any stride. A thread finds the pixels of dy that used its pixel of x.
template <class Half>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const uint4* dy, const uint4* taps, DepthwiseNhwcShape z, uint4* dx) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t i = global_thread(); i < z.count; i += global_threads()) {
    const Place at = place_of(z, i);
    float sum[kPieceLanes] = {};
    // Without dilation, only every stride_h-th tap reaches a pixel of dy.
    const int step_h = z.dilation_h == 1 ? z.stride_h : 1;
    const int step_w = z.dilation_w == 1 ? z.stride_w : 1;
    for (int r = (at.p + z.pad_h) % step_h; r < z.r; r += step_h) {
      const int down = at.p + z.pad_h - r * z.dilation_h;
      if (down < 0 || down % z.stride_h != 0 || down / z.stride_h >= z.h) continue;
      for (int s = (at.strip + z.pad_w) % step_w; s < z.s; s += step_w) {
        const int across = at.strip + z.pad_w - s * z.dilation_w;
        if (across < 0 || across % z.stride_w != 0 || across / z.stride_w >= z.w) continue;
        float w[kPieceLanes], v[kPieceLanes];
        floats_of_piece<Half>(taps[(r * z.s + s) * z.pieces + at.piece], w);
        floats_of_piece<Half>(
            dy[((static_cast<std::int64_t>(at.n) * z.h + down / z.stride_h) * z.w +
                across / z.stride_w) *
                   z.pieces +
               at.piece],
            v);
        multiply_add<Half>(sum, w, v);
      }
    }
    dx[i] = piece_of_floats<Half>(sum);
  }
}

// Grid: x = pieces, y = split of the pixels of dy, z = groups of kTaps taps. The kernel writes
// partial sums in the order [group of taps][split][tap].
template <class Half>
__global__ void __launch_bounds__(kThreads)
    weight_kernel(const uint4* x, const uint4* dy, ChannelWalk walk, DepthwiseNhwcShape z,
                  std::int64_t floats, float* part) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int first_tap = static_cast<int>(blockIdx.z) * kTaps;
  float sums[kTaps][kPieceLanes] = {};
  const int piece = walk.piece();
  walk.run_pixels(
      [&](std::int64_t pixel) { return dy[pixel * z.pieces + piece]; },
      [&](std::int64_t pixel, const uint4& in) {
        const int line = z.by_strips.divide(static_cast<int>(pixel));  // strips of one pixel
        const int n = z.by_p.divide(line);
        const int h = (line - n * z.p) * z.stride_h - z.pad_h;
        const int w = (static_cast<int>(pixel) - line * z.q) * z.stride_w - z.pad_w;
        float g[kPieceLanes];
        floats_of_piece<Half>(in, g);
        int r = first_tap / z.s;
        int s = first_tap - r * z.s;
#pragma unroll
        for (int t = 0; t < kTaps; ++t) {
          const int i = h + r * z.dilation_h;
          const int j = w + s * z.dilation_w;
          if (r < z.r && is_in(i, z.h) && is_in(j, z.w)) {
            float v[kPieceLanes];
            floats_of_piece<Half>(
                x[((static_cast<std::int64_t>(n) * z.h + i) * z.w + j) * z.pieces + piece], v);
            multiply_add<Half>(sums[t], g, v);
          }
          if (++s == z.s) {
            s = 0;
            ++r;
          }
        }
      });
  walk.put_part(sums, part + blockIdx.z * floats);
}

// Grid: x = channels, y = groups of kTaps taps.
__global__ void __launch_bounds__(kThreads)
    finish_weights(ChannelWalk walk, const float* part, std::int64_t floats, int channels, int taps,
                   bool accumulate, float* dw) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  double sums[kTaps];
  walk.add_parts(part + blockIdx.y * floats, sums);
  const int c = walk.channel();
  if (!walk.is_finisher() || c >= channels) return;
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
    const int tap = static_cast<int>(blockIdx.y) * kTaps + t;
    if (tap >= taps) continue;
    float& to = dw[static_cast<std::int64_t>(c) * taps + tap];
    const auto sum = static_cast<float>(sums[t]);
    to = accumulate ? to + sum : sum;
  }
}

// ---- launches ----------------------------------------------------------------------------------

LaunchShape shape_of(std::int64_t count) {
  LaunchShape shape = grid_for(count);
  shape.overlaps_previous = true;
  return shape;
}

bool rotates_weights(const Conv2dProblem& z, Direction direction) {
  return direction == Direction::backward_data && z.stride_h == 1 && z.stride_w == 1;
}

void slide(const Conv2dProblem& z, const DepthwiseNhwcShape& s, const void* x, const void* taps,
           const Finish& end, void* y) {
  with_half_type(z.dtype, [&](auto zero) {
    launch(slide_kernel<decltype(zero)>, shape_of(s.count), static_cast<const uint4*>(x),
           static_cast<const uint4*>(taps), s, end, static_cast<uint4*>(y));
  });
}

std::size_t prepared_bytes(const Conv2dProblem& z, Direction) {
  return static_cast<std::size_t>(z.r * z.s * round_up(z.c, std::int64_t{kPieceLanes})) * 2;
}

// For a single call, the 3x3 kernels read w directly, which is as fast and saves a launch.
bool prepares_for_one_call(const Conv2dProblem& z, Direction) { return !depthwise::fits_3x3(z); }

void prepare_weights(const Conv2dPrepareArgs& args) {
  const Conv2dProblem& z = args.problem;
  const int pieces = narrow(ceil_div(z.c, std::int64_t{kPieceLanes}));
  const int taps = narrow(z.r * z.s);
  with_half_type(z.dtype, [&](auto zero) {
    launch(round_weights<decltype(zero)>, shape_of(std::int64_t{taps} * pieces),
           static_cast<const float*>(args.w), narrow(z.c), pieces, taps,
           rotates_weights(z, args.direction), static_cast<uint4*>(args.prepared));
  });
}

void forward(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (depthwise::fits_3x3(z)) return depthwise::forward_3x3(args);
  slide(z, sizes_of(z, false, kColumns), args.x, args.prepared,
        {static_cast<const float*>(args.b), static_cast<const uint4*>(args.epilogue.residual),
         args.epilogue.relu, narrow(z.c)},
        args.y);
}

void backward_data(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (depthwise::fits_3x3(z)) return depthwise::backward_data_3x3(args);
  if (rotates_weights(z, Direction::backward_data)) {
    DepthwiseNhwcShape s = sizes_of(z, true, kColumns);
    s.pad_h = s.dilation_h * (s.r - 1) - s.pad_h;
    s.pad_w = s.dilation_w * (s.s - 1) - s.pad_w;
    return slide(z, s, args.dy, args.prepared, {nullptr, nullptr, false, narrow(z.c)}, args.dx);
  }
  const DepthwiseNhwcShape s = sizes_of(z, true, 1);
  with_half_type(z.dtype, [&](auto zero) {
    launch(gather_kernel<decltype(zero)>, shape_of(s.count), static_cast<const uint4*>(args.dy),
           static_cast<const uint4*>(args.prepared), s, static_cast<uint4*>(args.dx));
  });
}

ChannelWalk walk_of(const Conv2dProblem& z) {
  return ChannelWalk(stored_shape(z.y_shape(), ActivationLayout::nhwc));
}
int chunks_of(const Conv2dProblem& z) { return narrow(ceil_div(z.r * z.s, std::int64_t{kTaps})); }

std::size_t workspace_bytes(const Conv2dProblem& z, Direction direction) {
  if (direction != Direction::backward_weight) return 0;
  if (depthwise::fits_3x3(z)) return depthwise::weight_bytes_3x3(z);
  return walk_of(z).part_floats(kTaps) * static_cast<std::size_t>(chunks_of(z)) * sizeof(float);
}

void backward_weight(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  if (depthwise::fits_3x3(z)) return depthwise::backward_weight_3x3(args);
  const ChannelWalk walk = walk_of(z);
  const DepthwiseNhwcShape s = sizes_of(z, false, 1);
  const auto floats = static_cast<std::int64_t>(walk.part_floats(kTaps));
  auto* const part = static_cast<float*>(args.workspace);
  LaunchShape shape = walk.shape();
  shape.grid.z = static_cast<unsigned>(chunks_of(z));
  with_half_type(z.dtype, [&](auto zero) {
    launch(weight_kernel<decltype(zero)>, shape, static_cast<const uint4*>(args.x),
           static_cast<const uint4*>(args.dy), walk, s, floats, part);
  });
  shape = walk.finish_shape();
  shape.grid.y = static_cast<unsigned>(chunks_of(z));
  launch(finish_weights, shape, walk, part, floats, narrow(z.c), narrow(z.r * z.s), args.accumulate,
         static_cast<float*>(args.dw));
}

// ---- algorithm
// --------------------------------------------------------------------------------------

Conv2dSupport supports(const Conv2dProblem& z, Direction) {
  const OperandTypes half_types{
      .x = z.dtype, .w = DType::f32, .accumulator = DType::f32, .y = z.dtype};
  if (z.layout != ActivationLayout::nhwc || !is_half(z.dtype) ||
      z.operand_types() != half_types) {
    return Conv2dSupport::no(cat("expects fp16/bf16 in NHWC and f32 weights, got ",
                                 z.operand_types().text(), " with layout ", name_of(z.layout)));
  }
  if (z.groups != z.c || z.k != z.c) {
    return Conv2dSupport::no(cat("expects one input and one output channel in each group, got ",
                                 z.c, " and ", z.k, " channels in ", z.groups, " groups"));
  }
  if (z.r > kMaxTaps || z.s > kMaxTaps) {
    return Conv2dSupport::no(cat("expects a kernel of at most ", kMaxTaps, "x", kMaxTaps,
                                 ", because it reads x once for each tap, got ", z.r, "x", z.s));
  }
  const std::int64_t pixels = z.n * std::max(z.h * z.w, z.p() * z.q());
  if (pixels * ceil_div(z.c, std::int64_t{kPieceLanes}) >= (std::int64_t{1} << 31)) {
    return Conv2dSupport::no(
        "expects fewer than 2^31 pieces of 8 channels in a tensor, because places in it have 32 "
        "bits");
  }
  return {};
}

// The work of the 3x3 kernels: a block of 128 threads, 4 of which fit on an SM. A thread walks down
// a band and loads a row of its window at a time.
Cost walk_counts(const Conv2dProblem& z, const depthwise::Walk3x3& walk, const char* schedule) {
  using depthwise::Walk3x3;
  constexpr double kThreadsOfBlock = 128, kHalfBytes = 2;
  const double stride = number(z.stride_h), blocks = number(walk.blocks) * walk.blocks_of_pairs();
  const double rows = walk.band * stride + 2;
  const double elements = Walk3x3::kColumns * Walk3x3::kLanes * blocks * kThreadsOfBlock;
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          .issued = 2 * 9 * elements * walk.band,
          .cached = elements / Walk3x3::kColumns * (Walk3x3::kColumns * stride + 2) * rows *
                    kHalfBytes,
          .schedule = schedule,
          .blocks = blocks,
          .resident = 4,
          .chain = rows,
          .stored = elements * walk.band};
}

// A thread has eight channels of some pixels and loads x once for each tap.
Cost thread_counts(const Conv2dProblem& z, std::int64_t threads, int pixels, const char* schedule) {
  const LaunchShape shape = grid_for(threads);
  const double all = number(threads) * pixels * kPieceLanes, taps = number(z.r * z.s);
  Cost out{.flops = z.nominal_flops(),
           .bytes = z.nominal_bytes(),
           .issued = 2 * all * taps,
           .cached = 2 * (all + number(threads) * kPieceLanes) * taps,
           .schedule = schedule,
           .blocks = static_cast<double>(shape.grid.x),
           .resident = 2048.0 / kThreads,
           .stored = all};
  out.chain = taps * std::ceil(number(threads) / (out.blocks * kThreads));
  return out;
}

Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
  const bool data = direction == Direction::backward_data;
  Cost out;
  if (direction == Direction::backward_weight) {
    if (depthwise::fits_3x3(z)) {
      out = walk_counts(z, depthwise::walk_of_both_3x3(z), "3x3");
      out.waits = kTaps;  // sums of the threads
    } else {
      const dim3 grid = walk_of(z).shape().grid;
      out = thread_counts(z, ceil_div(z.y_shape().numel(), kPieceLanes), 1, "any");
      out.blocks = number(std::int64_t{grid.x} * grid.y * chunks_of(z));
      out.chain = std::ceil(number(z.n * z.p() * z.q()) * kTaps / number(std::int64_t{grid.y}));
    }
    out.pass_bytes = 2 * static_cast<double>(workspace_bytes(z, direction));  // partial sums
    out.launches = 2;
    return out;
  }
  if (depthwise::fits_3x3(z)) {
    return data && z.stride_h == 2
               ? walk_counts(z, depthwise::walk_of_both_3x3(z), "3x3 strided")
               : walk_counts(z, depthwise::walk_of_slide_3x3(z, data), "3x3");
  }
  out = !data || rotates_weights(z, direction)
            ? thread_counts(z, sizes_of(z, data, kColumns).count, kColumns, "slide")
            : thread_counts(z, sizes_of(z, true, 1).count, 1, "gather");
  out.prepared_bytes =
      4 * number(z.w_shape().numel()) + static_cast<double>(prepared_bytes(z, direction));
  out.prepare_launches = 1;
  return out;
}

// Returns the cost of the kernel that computes both dx and dw: it reads x, dy and w once and writes
// dx once.
Conv2dCost cost_of_both(const Conv2dProblem& z) {
  Conv2dCost both = cost(z, Direction::backward_weight);
  both.flops *= 2;
  both.issued *= 2;
  both.bytes += static_cast<double>(z.x_shape().numel() * 2);
  both.schedule = "3x3 both";
  return both;
}

const Conv2dAlgorithm kAlgorithm{
    .name = "depthwise_nhwc",
    .device = DeviceType::cuda,
    .idea = "NHWC, fp16/bf16: eight adjacent channels are one 16-byte load",
    .paper = "Sifre 2014: Rigid-Motion Scattering for Image Classification (thesis)",
    .supports = supports,
    .cost = cost,
    .workspace_bytes = workspace_bytes,
    .prepared_bytes = prepared_bytes,
    .prepare_weights = prepare_weights,
    .prepares_for_one_call = prepares_for_one_call,
    .error_growth = 8,
    .exact_on_integers = true,
    .fuses_epilogue = true,
    .takes_mixed_types = true,
    .takes_nhwc = true,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weight = backward_weight,
};

const JointBackward kBoth{.fits = depthwise::fits_3x3,
                          .cost = cost_of_both,
                          .workspace_bytes = depthwise::weight_bytes_3x3,
                          .run = depthwise::backward_3x3};

}  // namespace

namespace depthwise {

bool fits_3x3(const Conv2dProblem& z) {
  return z.r == 3 && z.s == 3 && z.dilation_h == 1 && z.dilation_w == 1 &&
         z.stride_h == z.stride_w && z.stride_h <= 2 && z.pad_top <= 2 && z.pad_left <= 2;
}

}  // namespace depthwise
}  // namespace convscope
CONVSCOPE_CONV2D_JOINT_BACKWARD(convscope::kAlgorithm, convscope::kBoth)
CONVSCOPE_CONV2D_ALGORITHM(convscope::kAlgorithm)
