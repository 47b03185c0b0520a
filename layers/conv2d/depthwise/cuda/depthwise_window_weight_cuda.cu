// SPDX-License-Identifier: Apache-2.0
// depthwise_window_weight_cuda.cu: the gradient of small depthwise kernels for few pixels on the
// GPU, in one launch with a block for each channel. Windows of x are loaded directly to registers.
//
// Formula    dw[c,0,r,s] = sum over n, p, q of dy[n,c,p,q] x[n,c,p stride - pad_top + r,
//            q stride - pad_left + s]
// Textbook   for c, r, s:
//              for n, p, q: dw[c,0,r,s] += dy[n,c,p,q] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     Slices of the batch need a second launch that adds them up. When a channel has few
//            pixels, the second launch takes as long as the first one. Here one block owns the
//            whole channel. A thread takes 4 (or 2) neighbours of a row of dy at a time, loads
//            their window of x, and keeps R S accumulators over all groups of neighbours. At the
//            end a warp adds up the threads' results of a tap
// Shapes     x [N,C,H,W], dy [N,C,P,Q], dw [C,1,R,S], f32, f16 or bf16, row-major, x, dy aligned to
//            16 bytes; sums in f32
// Supports   R = S of 3, 5, 7; stride 1 or 2; no dilation, no multiplier; pad_left = (R - 1) / 2;
//            rows of whole units of 4 or 2; at most kMaxPieces units in a channel
// Cost       FLOPs = 2 N C P Q R S; bytes = x, dy once; workspace none; latency-bound
// Numerics   a thread adds its products in order, then lanes, then a tree: same bits on each run;
//            exact on integers. Inf or NaN in x affects only the results that use that x
// Backward   this file is backward_weight; dw assigned or added to
// Choices    A thread has at most 2 groups of neighbours. With more groups, the kernel with slices
//            is faster, because several blocks share a channel
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_window_cuda.cu; depthwise_weight_cuda.cu, for many pixels
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_window.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kWindowThreads = 128;
constexpr int kMaxPieces = 2 * kWindowThreads;

template <class T>
struct WindowWeightWork {
  int h = 0, w = 0, p = 0, q = 0;
  int pad_top = 0;
  int channels = 1;
  int pieces = 0;  // groups in a channel: (image, row, group)
  FastDivisor by_groups = {}, by_rows = {};
  const T* x = nullptr;
  const T* dy = nullptr;
  T* dw = nullptr;
  bool accumulate = false;
};

template <class T, int kSize, int kStride, int kColumns>
__global__ void __launch_bounds__(kWindowThreads)
    depthwise_window_weight_kernel(const __grid_constant__ WindowWeightWork<T> work) {
  using Read = Window<kSize, kStride, kColumns, 1>;
  constexpr int kTaps = kSize * kSize;
  __shared__ float shared[kTaps][kWindowThreads];
  let_next_kernel_start();
  wait_for_previous_kernel();
  const auto channel = static_cast<int>(blockIdx.x);
  const auto me = static_cast<int>(threadIdx.x);
  float sums[kTaps] = {};
  for (int first = 0; first < work.pieces; first += kWindowThreads) {
    const int at = min(first + me, work.pieces - 1);
    const int above = work.by_groups.divide(at);
    const int group = at - above * work.by_groups.d;
    const int image = work.by_rows.divide(above);
    const int row = above - image * work.by_rows.d;
    const int plane = image * work.channels + channel;
    float v[Read::kHigh][Read::kWide];
    load_window_of<Read::kUnit>(plane_at(work.x, plane, work.h, work.w),
                                row * kStride - work.pad_top, work.h, Read::first_unit(group),
                                work.w, v);
    float d[kColumns];
    load_unit<kColumns>(plane_at(work.dy, plane, work.p, work.q) + row * work.q + kColumns * group,
                        d);
    keep_loads_together();
    if (first + me >= work.pieces) continue;
#pragma unroll
    for (int r = 0; r < kSize; ++r) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
#pragma unroll
        for (int s = 0; s < kSize; ++s) {
          float& sum = sums[r * kSize + s];
          sum = fmaf(v[r][Read::kOffset + j * kStride + s], d[j], sum);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kTaps; ++i) shared[i][me] = sums[i];
  __syncthreads();
  const int lane = me % 32;
  for (int tap = me / 32; tap < kTaps; tap += kWindowThreads / 32) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWindowThreads; i += 32) sum += shared[tap][i + lane];
    sum = warp_sum(sum);
    if (lane > 0) continue;
    T& to = work.dw[channel * kTaps + tap];
    to = from_float<T>(work.accumulate ? to_float(to) + sum : sum);
  }
}

template <class T, int kSize>
void launch_stride(const WindowWeightWork<T>& work, int stride, int columns) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(work.channels)),
                    .block = dim3(kWindowThreads)};
  shape.overlaps_previous = true;
  if (stride == 1) {
    columns == 4 ? launch(depthwise_window_weight_kernel<T, kSize, 1, 4>, shape, work)
                 : launch(depthwise_window_weight_kernel<T, kSize, 1, 2>, shape, work);
  } else {
    columns == 4 ? launch(depthwise_window_weight_kernel<T, kSize, 2, 4>, shape, work)
                 : launch(depthwise_window_weight_kernel<T, kSize, 2, 2>, shape, work);
  }
}

}  // namespace

bool fits_window_weight(const Conv2dProblem& z, const void* x, const void* dy) {
  const int columns = window_columns(plane_map(z));
  return columns > 0 && is_whole(x) && is_whole(dy) && z.n * z.p() * z.q() / columns <= kMaxPieces;
}

void backward_weight_by_window(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const PlaneMap map = plane_map(z);
  const int columns = window_columns(map);
  const int groups = map.q / columns;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    const WindowWeightWork<T> work{.h = map.h,
                                   .w = map.w,
                                   .p = map.p,
                                   .q = map.q,
                                   .pad_top = map.pad_top,
                                   .channels = static_cast<int>(z.c),
                                   .pieces = static_cast<int>(z.n * map.p * groups),
                                   .by_groups = FastDivisor(groups),
                                   .by_rows = FastDivisor(map.p),
                                   .x = static_cast<const T*>(args.x),
                                   .dy = static_cast<const T*>(args.dy),
                                   .dw = static_cast<T*>(args.dw),
                                   .accumulate = args.accumulate};
    map.size == 3   ? launch_stride<T, 3>(work, map.stride, columns)
    : map.size == 5 ? launch_stride<T, 5>(work, map.stride, columns)
                    : launch_stride<T, 7>(work, map.stride, columns);
  });
}

}  // namespace convscope::depthwise
