// SPDX-License-Identifier: Apache-2.0
// depthwise_nhwc_both_cuda.cu: dx and dw of a 3x3 depthwise convolution of fp16/bf16 in
// NHWC, in one pass over x and dy.
//
// Formula    dx[n,c,h,w] = sum over r, s of w[c,r,s] dy[n,c,(h + pad - r) / stride, (w + pad - s) /
//            stride], where both are whole numbers and inside;
//            dw[c,r,s] = sum over n, h, w of x[n,c,h,w] times the same element of dy
// Textbook   for each pixel (h,w) of x, each (r,s) that reaches a pixel of dy:
//              dx[h][w] += w[r][s] * dy[..]
//              dw[r][s] += x[h][w] * dy[..]
// Method     For a pixel of x, dx and dw are sums over the same elements of dy. A thread that has
//            these elements in registers computes both gradients, so x and dy are read once, and dx
//            is written once. A thread has two channels of four columns of x and loops down a band
//            of rows. The registers of a thread hold three (at stride 2: two) packed rows of dy,
//            which a row of x needs, the nine taps and nine accumulators of dw. At the end the
//            block adds the accumulators of its threads and stores a partial dw; a small second
//            launch adds the partial results of all blocks. At stride 2, rows and columns are
//            counted from the padding on. Even rows use taps 0 and 2, odd rows tap 1, and columns
//            likewise; a step of the loop is a pair of rows. The same kernel also computes only dx
//            of stride 2, or only dw.
// Shapes     x, dx [N,1,H,W,Cp], dy [N,1,P,Q,Cp] fp16/bf16, Cp a multiple of 8, 16-byte aligned;
//            taps [9][Cp] fp16/bf16 (prepared), or w [C,1,3,3] f32; dw [C,1,3,3] f32; sums in f32
// Supports   3x3, no dilation, stride 1 or 2 along both axes, padding of at most 2
// Cost       FLOPs = 36 N C P Q for both; bytes = x, dy and dx once; workspace = 9 Cp floats for
//            each block. Memory-bound
// Numerics   operands rounded to fp16/bf16; dx as in depthwise_nhwc. dw: at most 4 x 28
//            terms in f32 one after another, then threads pairwise and warps in f32, then blocks in
//            double. Same bits on each run, and the same bits of dw with and without dx; exact on
//            integers
// Backward   dx assigned, dw assigned or added to
// Choices    two channels: 18 taps, 18 accumulators of dw and 18 pairs of dy leave enough of 128
//            registers for rows in flight, so that the loads of 16 warps overlap
// Source     L. Sifre: Rigid-Motion Scattering for Image Classification, 2014 (thesis)
// Read next  depthwise_nhwc_slide_cuda.cu
#include "layers/conv2d/depthwise/cuda/depthwise_nhwc_3x3.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kThreadsOfBlock = 128;
constexpr int kBlocksWanted = 4;
constexpr int kMultiprocessors = 132;  // SMs of the GPU for which bands are tiled
constexpr int kTaps = 9;
constexpr int kFinishers = 8;  // channels of a block that adds parts

struct BothWork {
  Walk3x3 walk = {};
  Taps3x3 taps = {};
  int h = 0, w = 0, p = 0, q = 0;
  int pad_h = 0, pad_w = 0;
  const unsigned* x = nullptr;
  const unsigned* dy = nullptr;
  unsigned* dx = nullptr;
  float* parts = nullptr;  // [blocks][9][Cp]
};

template <class Half, bool kData>
__device__ inline void store_row(const BothWork& work, unsigned* image, int row, int first,
                                 const float (&sums)[kColumns][kLanes]) {
  if constexpr (kData) {
    if (!is_in(row, work.h)) return;
    unsigned* to = image + (static_cast<std::int64_t>(row) * work.w + first) * work.walk.pairs;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      if (is_in(first + j, work.w)) *to = pair_from_floats<Half>(sums[j][0], sums[j][1]);
      to += work.walk.pairs;
    }
  }
}

// Adds w times `dy` of tap t to the pixel of dx, and x times `dy` to dw.
template <bool kData, bool kWeight>
__device__ inline void add_products(const float (&dy)[kLanes], const float (&x)[kLanes],
                                    const float (&tap)[kLanes], float (&dx)[kLanes],
                                    float (&dw)[kLanes]) {
#pragma unroll
  for (int l = 0; l < kLanes; ++l) {
    if constexpr (kData) dx[l] = fmaf(tap[l], dy[l], dx[l]);
    if constexpr (kWeight) dw[l] = fmaf(x[l], dy[l], dw[l]);
  }
}

// Adds the accumulators of the block's threads in a fixed order. Stores the sums in `parts`, in the
// order [block][tap][channel].
__device__ inline void put_part(const BothWork& work, float (&dw)[kTaps][kLanes]) {
  constexpr int kWarps = kThreadsOfBlock / 32;
  __shared__ float scratch[kWarps][kTaps][32 * kLanes];
  const int width = work.walk.width();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
  for (int t = 0; t < kTaps; ++t) {
#pragma unroll
    for (int l = 0; l < kLanes; ++l) {
      for (int offset = 16; offset >= width; offset /= 2) {
        dw[t][l] += __shfl_xor_sync(kAllLanes, dw[t][l], offset);
      }
      if (lane < width) scratch[warp][t][lane * kLanes + l] = dw[t][l];
    }
  }
  __syncthreads();
  const int own = width * kLanes;
  const int channels = work.walk.pairs * kLanes;
  for (int i = static_cast<int>(threadIdx.x); i < kTaps * own; i += kThreadsOfBlock) {
    const int t = i / own;
    const int channel = i - t * own;
    const int to = static_cast<int>(blockIdx.y) * own + channel;
    if (to >= channels) continue;
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += scratch[w][t][channel];
    work.parts[(static_cast<std::int64_t>(blockIdx.x) * kTaps + t) * channels + to] = sum;
  }
}

template <class Half, int kStride, bool kData, bool kWeight>
__global__ void __launch_bounds__(kThreadsOfBlock, kBlocksWanted)
    both_3x3_kernel(const __grid_constant__ BothWork work) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const Place3x3 at = place_of(work.walk);
  float dw[kTaps][kLanes] = {};
  if (!at.is_idle) {
    const int pairs = work.walk.pairs;
    float taps[kTaps][kLanes] = {};
    if constexpr (kData) load_taps<Half>(work.taps, at.pair, taps);
    const unsigned* const dy =
        work.dy + static_cast<std::int64_t>(at.n) * work.p * work.q * pairs + at.pair;
    const std::int64_t image = static_cast<std::int64_t>(at.n) * work.h * work.w * pairs + at.pair;
    const unsigned* const x = work.x + (kWeight ? image : 0);
    unsigned* const dx = work.dx + (kData ? image : 0);
    if constexpr (kStride == 1) {
      // Row h of x uses row h + pad - r of dy at tap r; window[k] is row h + pad - 2 + k.
      constexpr int kDyColumns = kColumns + 2;
      // A loop with dx that is unrolled three times needs too many registers, and the code of nvcc
      // 13.0 then stores wrong dx. GPU tests detect the error; the emulation of kernels does not.
      [[maybe_unused]] constexpr int kUnrolled = kData ? 1 : 3;
      const int w0 = at.strip * kColumns;
      const int first = w0 + work.pad_w - 2;
      const int h0 = at.band * work.walk.band;
      const int rows = min(work.walk.band, work.h - h0);
      unsigned window[3][kDyColumns];
      unsigned in[kColumns] = {};
#pragma unroll
      for (int k = 0; k < 3; ++k) {
        load_row(dy, h0 + work.pad_h - 2 + k, work.p, first, work.q, pairs, window[k]);
      }
      if constexpr (kWeight) load_row(x, h0, work.h, w0, work.w, pairs, in);
#pragma unroll kUnrolled
      for (int i = 0; i < rows; ++i) {
        unsigned next[kDyColumns];
        unsigned next_in[kColumns] = {};
        load_row(dy, i + 1 < rows ? h0 + i + 1 + work.pad_h : -1, work.p, first, work.q, pairs,
                 next);
        if constexpr (kWeight) {
          load_row(x, i + 1 < rows ? h0 + i + 1 : -1, work.h, w0, work.w, pairs, next_in);
        }
        float sums[kColumns][kLanes] = {};
        float pixels[kColumns][kLanes];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) floats_of<Half>(in[j], pixels[j]);
          // Adds in the order of (r, s), like the other kernels.
#pragma unroll
        for (int r = 2; r >= 0; --r) {
#pragma unroll
          for (int c = 0; c < kDyColumns; ++c) {
            float v[kLanes];
            floats_of<Half>(window[2 - r][c], v);
#pragma unroll
            for (int s = 2; s >= 0; --s) {
              const int j = c - 2 + s;
              if (j < 0 || j >= kColumns) continue;
              add_products<kData, kWeight>(v, pixels[j], taps[r * 3 + s], sums[j], dw[r * 3 + s]);
            }
          }
        }
        store_row<Half, kData>(work, dx, h0 + i, w0, sums);
#pragma unroll
        for (int c = 0; c < kDyColumns; ++c) {
          window[0][c] = window[1][c];
          window[1][c] = window[2][c];
          window[2][c] = next[c];
        }
#pragma unroll
        for (int j = 0; j < kColumns; ++j) in[j] = next_in[j];
      }
    } else {
      // Row u = h + pad of x uses rows of dy: u / 2 at tap 0 and u / 2 - 1 at tap 2 when u is even,
      // (u - 1) / 2 at tap 1 when u is odd. Pair i has u = 2 i and 2 i + 1.
      constexpr int kDyColumns = kColumns / 2 + 1;
      const int first = at.strip * (kColumns / 2) - 1;  // column of dy
      const int w0 = at.strip * kColumns - work.pad_w;
      const int i0 = at.band * work.walk.band;
      const int steps = min(work.walk.band, (work.h + work.pad_h + 1) / 2 - i0);
      unsigned above[kDyColumns];
      load_row(dy, i0 - 1, work.p, first, work.q, pairs, above);
#pragma unroll 2
      for (int i = i0; i < i0 + steps; ++i) {
        unsigned here[kDyColumns];
        unsigned in[2][kColumns] = {};
        load_row(dy, i, work.p, first, work.q, pairs, here);
        const int h = 2 * i - work.pad_h;
        if constexpr (kWeight) {
#pragma unroll
          for (int k = 0; k < 2; ++k) load_row(x, h + k, work.h, w0, work.w, pairs, in[k]);
        }
        float sums[2][kColumns][kLanes] = {};
        float pixels[2][kColumns][kLanes];
#pragma unroll
        for (int k = 0; k < 2; ++k) {
#pragma unroll
          for (int j = 0; j < kColumns; ++j) floats_of<Half>(in[k][j], pixels[k][j]);
        }
#pragma unroll
        for (int r = 0; r < 3; ++r) {
          const int k = r % 2;
#pragma unroll
          for (int c = 0; c < kDyColumns; ++c) {
            float v[kLanes];
            floats_of<Half>(r == 2 ? above[c] : here[c], v);
#pragma unroll
            for (int s = 0; s < 3; ++s) {
              const int j = 2 * (c - 1) + s;  // column of x
              if (j < 0 || j >= kColumns) continue;
              add_products<kData, kWeight>(v, pixels[k][j], taps[r * 3 + s], sums[k][j],
                                           dw[r * 3 + s]);
            }
          }
        }
#pragma unroll
        for (int k = 0; k < 2; ++k) store_row<Half, kData>(work, dx, h + k, w0, sums[k]);
#pragma unroll
        for (int c = 0; c < kDyColumns; ++c) above[c] = here[c];
      }
    }
  }
  if constexpr (kWeight) put_part(work, dw);
}

// Grid: x = channels, y = tap. A thread adds every 32nd part of a channel.
__global__ void __launch_bounds__(kThreads) finish_3x3(const float* parts, int count, int channels,
                                                       int padded, bool accumulate, float* dw) {
  constexpr int kRows = static_cast<int>(kThreads) / kFinishers;
  __shared__ double scratch[kRows][kFinishers];
  const int row = static_cast<int>(threadIdx.x) / kFinishers;
  const int own = static_cast<int>(threadIdx.x) % kFinishers;
  const int channel = static_cast<int>(blockIdx.x) * kFinishers + own;
  const int tap = static_cast<int>(blockIdx.y);
  let_next_kernel_start();
  wait_for_previous_kernel();
  double sum = 0;
  if (channel < padded) {
#pragma unroll 8
    for (int part = row; part < count; part += kRows) {
      sum += static_cast<double>(
          parts[(static_cast<std::int64_t>(part) * kTaps + tap) * padded + channel]);
    }
  }
  scratch[row][own] = sum;
  __syncthreads();
  if (threadIdx.x >= kFinishers || channel >= channels) return;
  sum = 0;
  for (int r = 0; r < kRows; ++r) sum += scratch[r][own];
  float& to = dw[channel * kTaps + tap];
  to = accumulate ? to + static_cast<float>(sum) : static_cast<float>(sum);
}

// ---- launches ----------------------------------------------------------------------------------

Walk3x3 walk_of(const Conv2dProblem& z) {
  const int stride = static_cast<int>(z.stride_h);
  const int rows = static_cast<int>(stride == 1 ? z.h : ceil_div(z.h + z.pad_top, 2));
  const int columns = static_cast<int>(stride == 1 ? z.w : z.w + z.pad_left);
  return make_walk_3x3(z.n, rows, columns, static_cast<int>(z.c), kThreadsOfBlock,
                       kBlocksWanted * kMultiprocessors, stride == 1 ? 2 : 1);
}

template <bool kData, bool kWeight>
void run(const Conv2dProblem& z, BothWork work) {
  work.walk = walk_of(z);
  work.h = static_cast<int>(z.h);
  work.w = static_cast<int>(z.w);
  work.p = static_cast<int>(z.p());
  work.q = static_cast<int>(z.q());
  work.pad_h = static_cast<int>(z.pad_top);
  work.pad_w = static_cast<int>(z.pad_left);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(work.walk.blocks),
                                       static_cast<unsigned>(work.walk.blocks_of_pairs())),
                          .block = dim3(kThreadsOfBlock),
                          .overlaps_previous = true};
  with_half_type(z.dtype, [&](auto zero) {
    using Half = decltype(zero);
    if constexpr (kWeight) {  // stride 2 computes only dx
      if (z.stride_h == 1) return launch(both_3x3_kernel<Half, 1, kData, true>, shape, work);
    }
    launch(both_3x3_kernel<Half, 2, kData, kWeight>, shape, work);
  });
}

void add_parts(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const Walk3x3 walk = walk_of(z);
  const int padded = walk.pairs * kLanes;
  launch(finish_3x3,
         {.grid = dim3(static_cast<unsigned>(ceil_div(padded, kFinishers)), kTaps),
          .block = dim3(kThreads),
          .overlaps_previous = true},
         static_cast<const float*>(args.workspace), walk.blocks, static_cast<int>(z.c), padded,
         args.accumulate, static_cast<float*>(args.dw));
}

}  // namespace

Walk3x3 walk_of_both_3x3(const Conv2dProblem& z) { return walk_of(z); }

std::size_t weight_bytes_3x3(const Conv2dProblem& z) {
  const Walk3x3 walk = walk_of(z);
  return static_cast<std::size_t>(walk.blocks) * kTaps *
         static_cast<std::size_t>(walk.pairs * kLanes) * sizeof(float);
}

void backward_data_3x3(const Conv2dBackwardDataArgs& args) {
  if (args.problem.stride_h == 1) return slide_back_3x3(args);
  run<true, false>(args.problem, {.taps = taps_3x3(args.problem, args.prepared, args.w, false),
                                  .dy = static_cast<const unsigned*>(args.dy),
                                  .dx = static_cast<unsigned*>(args.dx)});
}

void backward_weight_3x3(const Conv2dBackwardWeightArgs& args) {
  run<false, true>(args.problem, {.x = static_cast<const unsigned*>(args.x),
                                  .dy = static_cast<const unsigned*>(args.dy),
                                  .parts = static_cast<float*>(args.workspace)});
  add_parts(args);
}

void backward_3x3(const Conv2dBackwardDataArgs& data, const Conv2dBackwardWeightArgs& weight) {
  // The prepared weights of stride 1 are rotated, but this kernel needs tap (r, s) of w.
  Taps3x3 taps = taps_3x3(data.problem, data.prepared, data.w, false);
  taps.prepared_are_rotated = data.problem.stride_h == 1;
  run<true, true>(data.problem, {.taps = taps,
                                 .x = static_cast<const unsigned*>(weight.x),
                                 .dy = static_cast<const unsigned*>(weight.dy),
                                 .dx = static_cast<unsigned*>(data.dx),
                                 .parts = static_cast<float*>(weight.workspace)});
  add_parts(weight);
}

}  // namespace convscope::depthwise
