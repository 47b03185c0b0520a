// SPDX-License-Identifier: Apache-2.0
// depthwise_nhwc_slide_cuda.cu: 3x3 depthwise convolution of fp16/bf16 in NHWC. A thread moves down
// four columns. It loads each row of x once and adds its products to every row of y that needs
// them.
//
// Formula    y[n,c,p,q] = relu(b[c] + sum over r, s of w[c,r,s] x[n, c, p stride - pad_top + r,
//            q stride - pad_left + s] + residual[n,c,p,q]), x = 0 outside
// Textbook   for each pair of channels, n, four columns q, p:
//              for (r,s): sum[q][0..1] += w[r][s] * x[n][p stride + r - pad][q stride + s - pad]
// Method     Three rows of y (two, at stride 2) are accumulated at a time. A row of x is loaded
//            once, as six or nine 8-byte pairs, while the previous row is multiplied. Taps and
//            accumulators are in registers. Neighbouring lanes of a warp are neighbours in channels
//            first, then in columns. backward_data of stride 1 does the same over dy, with rotated
//            taps.
// Shapes     x [N,1,H,W,Cp], y [N,1,P,Q,Cp] fp16/bf16, Cp a multiple of 8, 16-byte aligned; taps
//            [9][Cp] fp16/bf16 (prepared), or w [C,1,3,3] f32; b [C] f32; sums in f32
// Supports   3x3, no dilation, stride 1 or 2 along both axes, padding of at most 2
// Cost       FLOPs = 18 N C P Q; bytes = x and y once; workspace none. Memory-bound
// Numerics   operands rounded to fp16/bf16, nine products added in f32 one after another; same bits
//            on each run; exact on integers
// Backward   stride 1: dx by the same kernel; else depthwise_nhwc_both_cuda.cu
// Choices    two channels, four columns: 18 taps and 24 accumulators leave enough of 96 registers
//            for two rows in flight, so that the loads of 20 warps overlap. Six loads serve 72
//            products. The height of a band is chosen so that the last round of blocks is nearly
//            full
// Source     L. Sifre: Rigid-Motion Scattering for Image Classification, 2014 (thesis)
// Read next  depthwise_nhwc_cuda.cu, any kernel; depthwise_nhwc_both_cuda.cu
#include "layers/conv2d/depthwise/cuda/depthwise_nhwc_3x3.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kThreadsOfBlock = 128;
constexpr int kBlocksWanted = 5;       // on an SM
constexpr int kMultiprocessors = 132;  // SMs of the GPU for which bands are tiled

struct SlideWork {
  Walk3x3 walk = {};
  Taps3x3 taps = {};
  int h = 0, w = 0, p = 0, q = 0;
  int pad_h = 0, pad_w = 0;
  const unsigned* x = nullptr;
  unsigned* y = nullptr;
  const float* bias = nullptr;
  const unsigned* residual = nullptr;
  bool relu = false;
};

template <class Half>
__device__ inline void finish(const SlideWork& work, float (&sum)[kLanes],
                              const float (&bias)[kLanes], std::int64_t at) {
#pragma unroll
  for (int l = 0; l < kLanes; ++l) sum[l] += bias[l];
  if (work.residual != nullptr) {
    float beside[kLanes];
    floats_of<Half>(work.residual[at], beside);
#pragma unroll
    for (int l = 0; l < kLanes; ++l) sum[l] += beside[l];
  }
#pragma unroll
  for (int l = 0; l < kLanes; ++l) sum[l] = finished(sum[l], work.relu);
  work.y[at] = pair_from_floats<Half>(sum[0], sum[1]);
}

template <class Half, int kStride>
__global__ void __launch_bounds__(kThreadsOfBlock, kBlocksWanted)
    slide_3x3_kernel(const __grid_constant__ SlideWork work) {
  constexpr int kLoads = (kColumns - 1) * kStride + 3;
  constexpr int kLive = kStride == 1 ? 3 : 2;  // rows of y in progress
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Place3x3 at = place_of(work.walk);
  if (at.is_idle) return;
  float taps[9][kLanes];
  load_taps<Half>(work.taps, at.pair, taps);
  float bias[kLanes] = {};
  if (work.bias != nullptr) {
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      const int c = at.pair * kLanes + l;
      if (c < work.taps.channels) bias[l] = work.bias[c];
    }
  }
  const int pairs = work.walk.pairs;
  const int p0 = at.band * work.walk.band;
  const int q0 = at.strip * kColumns;
  const int rows = min(work.walk.band, work.p - p0);
  const int first = q0 * kStride - work.pad_w;
  const int top = p0 * kStride - work.pad_h;
  const unsigned* const image =
      work.x + static_cast<std::int64_t>(at.n) * work.h * work.w * pairs + at.pair;
  const auto load = [&](int row, unsigned(&in)[kLoads]) {
    load_row(image, top + row, work.h, first, work.w, pairs, in);
  };

  std::int64_t to =
      ((static_cast<std::int64_t>(at.n) * work.p + p0) * work.q + q0) * pairs + at.pair;
  const auto store = [&](float(&sums)[kColumns][kLanes]) {
    std::int64_t here = to;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (q0 + j < work.q) finish<Half>(work, sums[j], bias, here);
      here += pairs;
    }
    to += static_cast<std::int64_t>(work.q) * pairs;
  };

  // sums[a] accumulates the row of y that is `a` rows above the lowest row of y that uses this row
  // of x.
  float sums[kLive][kColumns][kLanes] = {};
  const auto add_row = [&](const unsigned(&in)[kLoads], int age, int r) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      float v[kLanes];
      floats_of<Half>(in[j], v);
#pragma unroll
      for (int s = 0; s < 3; ++s) {
        if (j < s || (j - s) % kStride != 0 || (j - s) / kStride >= kColumns) continue;
#pragma unroll
        for (int l = 0; l < kLanes; ++l) {
          float& sum = sums[age][(j - s) / kStride][l];
          sum = fmaf(taps[r * 3 + s][l], v[l], sum);
        }
      }
    }
  };
  const auto grow_older = [&] {
#pragma unroll
    for (int a = kLive - 1; a >= 0; --a) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int l = 0; l < kLanes; ++l) sums[a][j][l] = a > 0 ? sums[a - 1][j][l] : 0.0f;
      }
    }
  };

  if constexpr (kStride == 1) {
    unsigned in[kLoads];
    load(0, in);
#pragma unroll 3
    for (int i = 0; i < rows + 2; ++i) {
      unsigned next[kLoads];
      load(i + 1 < rows + 2 ? i + 1 : i, next);
#pragma unroll
      for (int r = 0; r < 3; ++r) add_row(in, r, r);
      if (i >= 2) store(sums[2]);
      grow_older();
#pragma unroll
      for (int j = 0; j < kLoads; ++j) in[j] = next[j];
    }
  } else {
    unsigned in[kLoads];
    load(0, in);
    add_row(in, 0, 0);
#pragma unroll 2
    for (int o = 0; o < rows; ++o) {
      unsigned below[kLoads];
      load(2 * o + 1, in);
      load(2 * o + 2, below);
      add_row(in, 0, 1);
      grow_older();
      add_row(below, 1, 2);
      add_row(below, 0, 0);
      store(sums[1]);
    }
  }
}

Walk3x3 walk_of(std::int64_t images, int rows, int columns, int channels) {
  return make_walk_3x3(images, rows, columns, channels, kThreadsOfBlock,
                       kBlocksWanted * kMultiprocessors, 2);
}

template <int kStride>
void slide(DType dtype, SlideWork work, std::int64_t images) {
  work.walk = walk_of(images, work.p, work.q, work.taps.channels);
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(work.walk.blocks),
                                 static_cast<unsigned>(work.walk.blocks_of_pairs())),
                    .block = dim3(kThreadsOfBlock),
                    .overlaps_previous = true};
  with_half_type(
      dtype, [&](auto zero) { launch(slide_3x3_kernel<decltype(zero), kStride>, shape, work); });
}

}  // namespace

Walk3x3 walk_of_slide_3x3(const Conv2dProblem& z, bool backward) {
  return walk_of(z.n, static_cast<int>(backward ? z.h : z.p()),
                 static_cast<int>(backward ? z.w : z.q()), static_cast<int>(z.c));
}

void forward_3x3(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  const SlideWork work{.taps = taps_3x3(z, args.prepared, args.w, false),
                       .h = static_cast<int>(z.h),
                       .w = static_cast<int>(z.w),
                       .p = static_cast<int>(z.p()),
                       .q = static_cast<int>(z.q()),
                       .pad_h = static_cast<int>(z.pad_top),
                       .pad_w = static_cast<int>(z.pad_left),
                       .x = static_cast<const unsigned*>(args.x),
                       .y = static_cast<unsigned*>(args.y),
                       .bias = static_cast<const float*>(args.b),
                       .residual = static_cast<const unsigned*>(args.epilogue.residual),
                       .relu = args.epilogue.relu};
  z.stride_h == 1 ? slide<1>(z.dtype, work, z.n) : slide<2>(z.dtype, work, z.n);
}

void slide_back_3x3(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  slide<1>(z.dtype,
           {.taps = taps_3x3(z, args.prepared, args.w, true),
            .h = static_cast<int>(z.p()),
            .w = static_cast<int>(z.q()),
            .p = static_cast<int>(z.h),
            .q = static_cast<int>(z.w),
            .pad_h = static_cast<int>(2 - z.pad_top),
            .pad_w = static_cast<int>(2 - z.pad_left),
            .x = static_cast<const unsigned*>(args.dy),
            .y = static_cast<unsigned*>(args.dx)},
           z.n);
}

}  // namespace convscope::depthwise
