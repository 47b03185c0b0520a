// SPDX-License-Identifier: Apache-2.0
// depthwise_small_weight_cuda.cu: the gradient of the weights of a depthwise convolution of 7x7 and
// 14x14 planes on the GPU: runs of whole planes in shared memory, whole rows in the registers of a
// thread that keeps its channel over all images of its block.
//
// Formula    dw[c,0,r,s] = sum over n, p, q of dy[n,c,p,q] x[n,c,p - pad + r,q - pad + s]
// Textbook   for c, r, s:
//              for n, p, q: dw[c,0,r,s] += dy[n,c,p,q] * x[n,c,p+r-pad,q+s-pad]
// Plan       a block has 64 (14x14: 32) neighbouring channels and a slice of the images; of each
//            image it copies the runs of x and dy, 16 bytes at a time. A thread multiplies 7 rows
//            of dy with the rows of x that meet them; which columns meet is known at compile time.
//            Its R S sums go to partial[slice][c,r,s]; a second kernel adds the slices in order
// Shapes     x, dy [N,C,H,W] with H = W of 7 or 14, dw [C,1,R,S], f32 row-major, x, dy 16-byte
//            aligned
// Supports   7x7 with R = S of 3, 5, 7; 14x14 with 3; stride 1, pad (R - 1) / 2, no multiplier;
//            images that begin at 16 bytes
// Cost       FLOPs = less than 2 N C P Q R S; bytes = x, dy once, and the partial sums;
//            memory-bound
// Numerics   each thread adds up its slice, then slices in order: same bits on each run
// Backward   this is backward_weight; dw assigned or added to
// Choices    64 threads and 25 (14x14: 50) KiB: 4 blocks for each multiprocessor, as many as 1024
//            channels and 32 slices give
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_small_cuda.cu; depthwise_weight_cuda.cu for all other planes
#include "framework/cuda/async_copy.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kThreads = 64;
constexpr int kRows = 7;  // of dy in a thread
constexpr int kMostSlices = 32;

struct SmallWeightWork {
  int images = 0, channels = 1, slices = 1;
  const float* x = nullptr;
  const float* dy = nullptr;
  float* partial = nullptr;  // [slices, C, R S]
};

__device__ inline void start_run(const float* from, int count, float* to) {
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll 4
  for (int i = 4 * me; i + 3 < count; i += 4 * kThreads) async_copy<16>(to + i, from + i);
  if (me < count % 4) async_copy<4>(to + count - 1 - me, from + count - 1 - me);
}

// A row of kSide floats: loads of 8 bytes when rows are whole pairs.
template <int kSide>
__device__ inline void load_row(const float* row, float (&v)[kSide]) {
  if constexpr (kSide % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kSide / 2; ++i) {
      const float2 two = *reinterpret_cast<const float2*>(row + 2 * i);
      v[2 * i] = two.x, v[2 * i + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kSide; ++i) v[i] = row[i];
  }
}

template <int kSide, int kSize>
__global__ void __launch_bounds__(kThreads)
    depthwise_small_weight_kernel(const __grid_constant__ SmallWeightWork work) {
  constexpr int kStrips = kSide / kRows;
  constexpr int kPlanes = kThreads / kStrips;
  constexpr int kArea = kSide * kSide;
  constexpr int kPad = (kSize - 1) / 2;
  constexpr int kTaps = kSize * kSize;
  float* const x = dynamic_shared<float>();  // [planes, side, side]
  float* const dy = x + kPlanes * kArea;     // the same; at the end x holds the sums
  const int me = static_cast<int>(threadIdx.x);
  const int plane = me / kStrips;
  const int strip = me % kStrips;
  const int first = static_cast<int>(blockIdx.x) * kPlanes;
  const int channels = min(kPlanes, work.channels - first);
  const auto slice = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(std::int64_t{work.images} * slice / work.slices);
  const int end = static_cast<int>(std::int64_t{work.images} * (slice + 1) / work.slices);
  let_next_kernel_start();
  wait_for_previous_kernel();

  float sums[kTaps] = {};
  for (int image = begin; image < end; ++image) {
    const std::uint64_t run =
        (static_cast<std::uint64_t>(image) * static_cast<unsigned>(work.channels) + first) * kArea;
    if (image > begin) __syncthreads();  // all have read the planes before
    start_run(work.x + run, channels * kArea, x);
    start_run(work.dy + run, channels * kArea, dy);
    async_copy_commit();
    async_copy_wait<0>();
    __syncthreads();
    if (plane >= channels) continue;
    const int at = plane * kArea + strip * kRows * kSide;
    float d[kRows][kSide];
#pragma unroll
    for (int i = 0; i < kRows + 2 * kPad; ++i) {
      const int row = i - kPad;  // of x in the strip
      if (i < kRows) load_row<kSide>(dy + at + i * kSide, d[i]);
      if (kStrips == 1 && (row < 0 || row >= kSide)) continue;
      const bool inside = (row >= 0 || strip > 0) && (row < kRows || strip < kStrips - 1);
      if (!inside) continue;
      float v[kSide];
      load_row<kSide>(x + at + row * kSide, v);
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        const int o = i - r;
        if (o < 0 || o >= kRows) continue;
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
#pragma unroll
          for (int s = 0; s < kSize; ++s) {
            if (j + s - kPad < 0 || j + s - kPad >= kSide) continue;
            sums[r * kSize + s] = fmaf(v[j + s - kPad], d[o][j], sums[r * kSize + s]);
          }
        }
      }
    }
  }
  __syncthreads();
  float* const out = x;  // [planes, taps]
#pragma unroll
  for (int i = 0; i < kTaps; ++i) {
    float sum = sums[i];
    if (kStrips == 2) sum += __shfl_xor_sync(kAllLanes, sum, 1);
    if (strip == 0) out[plane * kTaps + i] = sum;
  }
  __syncthreads();
  float* const to =
      work.partial + (static_cast<std::int64_t>(slice) * work.channels + first) * kTaps;
  for (int i = me; i < channels * kTaps; i += kThreads) to[i] = out[i];
}

// dw[i] = or += sum of partial[slice][i]: 32 neighbours by 8 groups of slices in a block.
__global__ void __launch_bounds__(256)
    sum_rows_kernel(const float* partial, int count, int slices, bool accumulate, float* dw) {
  __shared__ float groups[8][32];
  wait_for_previous_kernel();
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  const auto group = static_cast<int>(threadIdx.x) / 32;
  const int at = static_cast<int>(blockIdx.x) * 32 + lane;
  float sum = 0;
  if (at < count) {
#pragma unroll 4
    for (int i = group; i < slices; i += 8)
      sum += partial[static_cast<std::int64_t>(i) * count + at];
  }
  groups[group][lane] = sum;
  __syncthreads();
  if (group > 0 || at >= count) return;
  sum = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += groups[i][lane];
  dw[at] = accumulate ? dw[at] + sum : sum;
}

// ---- launchers ---------------------------------------------------------------------------------

template <int kSide, int kSize>
void launch_small_weight(const SmallWeightWork& work) {
  constexpr int kPlanes = kThreads / (kSide / kRows);
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(work.channels, kPlanes)),
                                 static_cast<unsigned>(work.slices)),
                    .block = dim3(kThreads),
                    .shared_bytes = 2 * kPlanes * kSide * kSide * sizeof(float)};
  shape.overlaps_previous = true;
  launch(depthwise_small_weight_kernel<kSide, kSize>, shape, work);
}

}  // namespace

int weight_slices_of_small_planes(const Conv2dProblem& z) {
  return static_cast<int>(std::min<std::int64_t>(z.n, kMostSlices));
}

void backward_weight_of_small_planes(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const SmallWeightWork work{.images = static_cast<int>(z.n),
                             .channels = static_cast<int>(z.c),
                             .slices = weight_slices_of_small_planes(z),
                             .x = static_cast<const float*>(args.x),
                             .dy = static_cast<const float*>(args.dy),
                             .partial = static_cast<float*>(args.workspace)};
  z.h == 14  ? launch_small_weight<14, 3>(work)
  : z.r == 3 ? launch_small_weight<7, 3>(work)
  : z.r == 5 ? launch_small_weight<7, 5>(work)
             : launch_small_weight<7, 7>(work);
  const auto count = static_cast<int>(z.c * z.r * z.s);
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(count, 32))), .block = dim3(256)};
  shape.overlaps_previous = true;
  launch(sum_rows_kernel, shape, static_cast<const float*>(args.workspace), count, work.slices,
         args.accumulate, static_cast<float*>(args.dw));
}

}  // namespace convscope::depthwise
