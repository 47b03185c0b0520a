// SPDX-License-Identifier: Apache-2.0
// depthwise_small_weight_cuda.cu: the weight gradient of a depthwise convolution of 7x7 and 14x14
// planes on the GPU. A block copies whole planes to shared memory, and a thread keeps whole rows in
// registers. A thread has one channel for all images of its block.
//
// Formula    dw[c,0,r,s] = sum over n, p, q of dy[n,c,p,q] x[n,c,p stride - pad + r,
//            q stride - pad + s]
// Textbook   for c, r, s:
//              for n, p, q: dw[c,0,r,s] += dy[n,c,p,q] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     A block has 64 (14x14: 32) neighbouring channels and a slice of the images. From each
//            image it copies the planes of x and of dy as two runs, 16 bytes at a time. A thread
//            multiplies 7 rows of dy by the rows of x that they use; the pairs of columns are known
//            at compile time. The R S sums go to partial[slice][c,r,s]; a second kernel adds the
//            slices in order
// Shapes     x [N,C,H,W] with H = W of 7 or 14, dy [N,C,P,Q], dw [C,1,R,S], f32, f16 or bf16,
//            row-major, x, dy 16-byte aligned; sums in f32
// Supports   R = S of 3, 5, 7; 7x7 to 7x7, 14x14 to 14x14, and 14x14 to 7x7 with stride 2; pad (R -
//            1) / 2, no multiplier; images that begin at multiples of 16 bytes
// Cost       FLOPs = less than 2 N C P Q R S; bytes = x, dy once, and the partial sums;
//            memory-bound
// Numerics   each thread adds up its slice, then slices are added in order: same bits on each run
// Backward   this file is backward_weight; dw assigned or added to
// Choices    64 threads and 25 (14x14: 50) KiB: an SM holds 4 blocks, the number that 1024 channels
//            and 32 slices give
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_small_cuda.cu; depthwise_weight_cuda.cu for all other planes
#include "framework/cuda/async_copy.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kThreads = 64;
constexpr int kRows = 7;  // of dy in a thread
constexpr int kMaxSlices = 32;

template <class T>
struct SmallWeightWork {
  int images = 0, channels = 1, slices = 1;
  const T* x = nullptr;
  const T* dy = nullptr;
  float* partial = nullptr;  // [slices, C, R S]
};

template <class T>
__device__ inline void start_run(const T* from, int count, T* to) {
  constexpr int kUnit = 16 / sizeof(T);
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll 4
  for (int i = kUnit * me; i + kUnit <= count; i += kUnit * kThreads) {
    async_copy<16>(to + i, from + i);
  }
  if (me < count % kUnit) to[count - 1 - me] = from[count - 1 - me];
}

// Loads a row of kSide elements, in pairs when kSide is even.
template <int kSide, class T>
__device__ inline void load_row(const T* row, float (&v)[kSide]) {
  if constexpr (kSide % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kSide; i += 2) load_unit<2>(row + i, v + i);
  } else {
#pragma unroll
    for (int i = 0; i < kSide; ++i) v[i] = to_float(row[i]);
  }
}

template <class T, int kSide, int kSize, int kStride>
__global__ void __launch_bounds__(kThreads)
    depthwise_small_weight_kernel(const __grid_constant__ SmallWeightWork<T> work) {
  constexpr int kOut = (kSide - 1) / kStride + 1;  // rows and columns of dy
  constexpr int kStrips = kOut / kRows;
  constexpr int kPlanes = kThreads / kStrips;
  constexpr int kArea = kSide * kSide, kOutArea = kOut * kOut;
  constexpr int kPad = (kSize - 1) / 2;
  constexpr int kTaps = kSize * kSize;
  T* const x = dynamic_shared<T>();   // [planes, side, side]
  T* const dy = x + kPlanes * kArea;  // [planes, out, out]; at the end the accumulators overwrite x
                                      // and dy
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
    const std::uint64_t plane_before =
        static_cast<std::uint64_t>(image) * static_cast<unsigned>(work.channels) + first;
    if (image > begin) __syncthreads();  // all threads have read the previous planes
    start_run(work.x + plane_before * kArea, channels * kArea, x);
    start_run(work.dy + plane_before * kOutArea, channels * kOutArea, dy);
    async_copy_commit();
    async_copy_wait<0>();
    __syncthreads();
    if (plane >= channels) continue;
    const T* const x_rows = x + plane * kArea + strip * kRows * kStride * kSide;
    const T* const dy_rows = dy + plane * kOutArea + strip * kRows * kOut;
    float d[kRows][kOut];
#pragma unroll
    for (int o = 0; o < kRows; ++o) load_row<kOut>(dy_rows + o * kOut, d[o]);
#pragma unroll
    for (int i = 0; i < (kRows - 1) * kStride + kSize; ++i) {
      const int row = i - kPad;  // of x in the strip
      if (kStrips == 1 && (row < 0 || row >= kSide)) continue;
      const bool inside = (row >= 0 || strip > 0) && (row < kRows * kStride || strip < kStrips - 1);
      if (!inside) continue;
      float v[kSide];
      load_row<kSide>(x_rows + row * kSide, v);
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        if (i < r || (i - r) % kStride != 0) continue;
        const int o = (i - r) / kStride;
        if (o >= kRows) continue;
#pragma unroll
        for (int j = 0; j < kOut; ++j) {
#pragma unroll
          for (int s = 0; s < kSize; ++s) {
            const int column = j * kStride + s - kPad;
            if (column < 0 || column >= kSide) continue;
            sums[r * kSize + s] = fmaf(v[column], d[o][j], sums[r * kSize + s]);
          }
        }
      }
    }
  }
  __syncthreads();
  float* const out = dynamic_shared<float>();  // [planes, taps]
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

// Sets dw[i], or with `accumulate` adds to it, the sum of partial[slice][i] over the slices. A
// block has 32 neighbouring elements; 8 groups of threads share the slices.
template <class T>
__global__ void __launch_bounds__(256)
    sum_rows_kernel(const float* partial, int count, int slices, bool accumulate, T* dw) {
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
  dw[at] = from_float<T>(accumulate ? to_float(dw[at]) + sum : sum);
}

// ---- launchers ---------------------------------------------------------------------------------

template <class T, int kSide, int kSize, int kStride>
void launch_small_weight(const SmallWeightWork<T>& work) {
  constexpr int kOut = (kSide - 1) / kStride + 1;
  constexpr int kPlanes = kThreads / (kOut / kRows);
  constexpr std::size_t kBytes = kPlanes * (kSide * kSide + kOut * kOut) * sizeof(T);
  static_assert(kBytes >= kPlanes * kSize * kSize * sizeof(float));
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(work.channels, kPlanes)),
                                 static_cast<unsigned>(work.slices)),
                    .block = dim3(kThreads),
                    .shared_bytes = kBytes};
  shape.overlaps_previous = true;
  launch(depthwise_small_weight_kernel<T, kSide, kSize, kStride>, shape, work);
}

template <class T, int kSide, int kStride>
void launch_size(const SmallWeightWork<T>& work, std::int64_t size) {
  size == 3   ? launch_small_weight<T, kSide, 3, kStride>(work)
  : size == 5 ? launch_small_weight<T, kSide, 5, kStride>(work)
              : launch_small_weight<T, kSide, 7, kStride>(work);
}

}  // namespace

int weight_slices_of_small_planes(const Conv2dProblem& z) {
  return static_cast<int>(std::min<std::int64_t>(z.n, kMaxSlices));
}

void backward_weight_of_small_planes(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    const SmallWeightWork<T> work{.images = static_cast<int>(z.n),
                                  .channels = static_cast<int>(z.c),
                                  .slices = weight_slices_of_small_planes(z),
                                  .x = static_cast<const T*>(args.x),
                                  .dy = static_cast<const T*>(args.dy),
                                  .partial = static_cast<float*>(args.workspace)};
    z.stride_h == 2 ? launch_size<T, 14, 2>(work, z.r)
    : z.h == 14     ? launch_size<T, 14, 1>(work, z.r)
                    : launch_size<T, 7, 1>(work, z.r);
    const auto count = static_cast<int>(z.c * z.r * z.s);
    LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(count, 32))), .block = dim3(256)};
    shape.overlaps_previous = true;
    launch(sum_rows_kernel<T>, shape, static_cast<const float*>(args.workspace), count, work.slices,
           args.accumulate, static_cast<T*>(args.dw));
  });
}

}  // namespace convscope::depthwise
