// SPDX-License-Identifier: Apache-2.0
// depthwise_split_weight_cuda.cu: the gradient of large depthwise kernels for few planes on the
// GPU, in one launch with a block for each row of each kernel.
//
// Formula    dw[c,0,r,s] = sum over n, p, q of dy[n,c,p,q] x[n,c,p stride_h - pad_top + r,
//            q stride_w - pad_left + s]
// Textbook   for c, r, s:
//              for n, p, q: dw[c,0,r,s] += dy[n,c,p,q] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     A block owns row r of channel c, so each row p of dy uses one row of x. The block
//            copies some rows of dy and the matching rows of x to shared memory at a time. A thread
//            owns 4 neighbouring taps and some groups of 4 elements of dy. Each group makes 16 FMAs
//            with the 7 (stride 2: 10) elements of x that it uses. At the end a warp adds up the
//            threads' results of a tap
// Shapes     x [N,C,H,W], dy [N,C,P,Q], dw [C,1,R,S], f32, f16 or bf16, row-major, any alignment;
//            sums and shared memory f32
// Supports   kernels of up to 63x63, strides of 1 and 2 along a row, up to 3 along columns, no
//            dilation, no multiplier; a row of x and of dy that fit shared memory
// Cost       FLOPs = 2 N C P Q R S; bytes = x, dy once from memory, R times from L2; workspace
//            none; latency-bound
// Numerics   a thread adds its products in order, then lanes, then a tree: same bits on each run;
//            exact on integers. Inf or NaN in x affects only the results that use that x
// Backward   this file is backward_weight; dw assigned or added to
// Choices    256 threads, about 24 KiB: several blocks on each SM
// Source     as depthwise_large_cuda.cu
// Read next  depthwise_split_cuda.cu; depthwise_large_weight_cuda.cu, for many planes
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_large_launch.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope::depthwise {
namespace {

constexpr int kSplitThreads = 256;  // maximum
constexpr int kTileFloats = 6144;   // preferred maximum

template <class T>
struct SplitWeightWork {
  int h = 0, w = 0, p = 0, q = 0, r = 0, s = 0;
  int stride_h = 1, pad_top = 0, pad_left = 0;
  int images = 1, channels = 1;
  int taps4 = 1;   // groups of 4 taps
  int lanes = 1;   // threads with the same taps
  int pieces = 1;  // groups of 4 elements in a row of dy
  int rows = 1;    // of dy in shared memory
  int x_pitch = 0, dy_pitch = 0;
  FastDivisor by_taps4 = {}, by_pieces = {}, by_w = {}, by_q = {};
  const T* x = nullptr;
  const T* dy = nullptr;
  T* dw = nullptr;
  bool accumulate = false;
};

// Adds d[j] * x[j * kStride + i] to sums[i], for the first kCount of the 4 elements d[j] of dy.
template <int kStride, int kCount>
__device__ inline void add_products(const float* d, const float* x, float (&sums)[4]) {
  constexpr int kUnits = ((kCount - 1) * kStride + 4 + 3) / 4;
  float v[4 * kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) load_unit<4>(x + 4 * u, v + 4 * u);
  float g[4];
  load_unit<4>(d, g);
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = fmaf(v[j * kStride + i], g[j], sums[i]);
  }
}

template <class T, int kStride>
__global__ void __launch_bounds__(kSplitThreads)
    depthwise_split_weight_kernel(const __grid_constant__ SplitWeightWork<T> work) {
  float* const x = dynamic_shared<float>();        // [rows, x_pitch], column c at c + pad_left
  float* const dy = x + work.rows * work.x_pitch;  // [rows, dy_pitch]
  const auto channel = static_cast<int>(blockIdx.x);
  const auto r = static_cast<int>(blockIdx.y);
  const auto me = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  let_next_kernel_start();
  for (int i = 4 * me; i < work.rows * work.x_pitch; i += 4 * threads) {
    *reinterpret_cast<float4*>(x + i) = make_float4(0, 0, 0, 0);  // the borders stay zero
  }
  wait_for_previous_kernel();
  const int lane = work.by_taps4.divide(me);
  const int first_tap = 4 * (me - lane * work.taps4);
  // The rows [from, end) of dy for which row r of the kernel is inside x.
  const int from = max(0, ceil_div(work.pad_top - r, work.stride_h));
  const int end = min(work.p, floor_div(work.h - 1 + work.pad_top - r, work.stride_h) + 1);
  float sums[4] = {};
  for (int image = 0; image < work.images; ++image) {
    const int plane = image * work.channels + channel;
    const T* const x_plane = plane_at(work.x, plane, work.h, work.w);
    const T* const dy_plane = plane_at(work.dy, plane, work.p, work.q);
    for (int first = from; first < end; first += work.rows) {
      const int rows = min(work.rows, end - first);
      __syncthreads();  // all threads have zeroed x, or read the previous rows
#pragma unroll 4
      for (int i = me; i < rows * work.w; i += threads) {
        const int row = work.by_w.divide(i);
        const int column = i - row * work.w;
        const int h = (first + row) * work.stride_h - work.pad_top + r;
        const int to = column + work.pad_left;
        if (to < work.x_pitch) x[row * work.x_pitch + to] = to_float(x_plane[h * work.w + column]);
      }
#pragma unroll 4
      for (int i = me; i < rows * work.q; i += threads) {
        const int row = work.by_q.divide(i);
        dy[row * work.dy_pitch + i - row * work.q] = to_float(dy_plane[first * work.q + i]);
      }
      __syncthreads();
      if (lane >= work.lanes) continue;
#pragma unroll 1
      for (int i = lane; i < rows * work.pieces; i += work.lanes) {
        const int row = work.by_pieces.divide(i);
        const int q = 4 * (i - row * work.pieces);
        const float* const d = dy + row * work.dy_pitch + q;
        const float* const v = x + row * work.x_pitch + q * kStride + first_tap;
        const int left = work.q - q;
        if (left >= 4) {
          add_products<kStride, 4>(d, v, sums);
        } else if (left == 3) {
          add_products<kStride, 3>(d, v, sums);
        } else if (left == 2) {
          add_products<kStride, 2>(d, v, sums);
        } else {
          add_products<kStride, 1>(d, v, sums);
        }
      }
    }
  }
  __syncthreads();
  float* const shared = x;  // [4 taps4, lanes]
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (lane < work.lanes) shared[(first_tap + i) * work.lanes + lane] = sums[i];
  }
  __syncthreads();
  for (int s = me / 32; s < work.s; s += threads / 32) {
    float sum = 0;
    for (int i = me % 32; i < work.lanes; i += 32) sum += shared[s * work.lanes + i];
    sum = warp_sum(sum);
    if (me % 32 > 0) continue;
    T& to = plane_at(work.dw, channel, work.r, work.s)[r * work.s + s];
    to = from_float<T>(work.accumulate ? to_float(to) + sum : sum);
  }
}

// ---- launcher ----------------------------------------------------------------------------------

template <class T>
SplitWeightWork<T> split_weight_work(const Conv2dProblem& z) {
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  SplitWeightWork<T> work{.h = number(z.h),
                          .w = number(z.w),
                          .p = number(z.p()),
                          .q = number(z.q()),
                          .r = number(z.r),
                          .s = number(z.s),
                          .stride_h = number(z.stride_h),
                          .pad_top = number(z.pad_top),
                          .pad_left = number(z.pad_left),
                          .images = number(z.n),
                          .channels = number(z.c),
                          .taps4 = number(ceil_div(z.s, std::int64_t{4}))};
  work.dy_pitch = round_up(work.q, 4);
  // The pitch has room for the 12 elements of x that the last group of dy reads with the last group
  // of taps.
  work.x_pitch = round_up((work.q - 1) * number(z.stride_w) + 4 * work.taps4 + 12, 4);
  if (work.x_pitch / 4 % 2 == 0) work.x_pitch += 4;  // rows begin in different banks
  work.rows = std::clamp(kTileFloats / (work.x_pitch + work.dy_pitch), 1, work.p);
  work.pieces = work.dy_pitch / 4;
  work.lanes = std::min(work.rows * work.pieces, kSplitThreads / work.taps4);
  work.by_taps4 = FastDivisor(work.taps4);
  work.by_pieces = FastDivisor(work.pieces);
  work.by_w = FastDivisor(work.w);
  work.by_q = FastDivisor(work.q);
  return work;
}

template <class T>
int shared_floats_of(const SplitWeightWork<T>& work) {
  return std::max(work.rows * (work.x_pitch + work.dy_pitch), work.lanes * 4 * work.taps4);
}

}  // namespace

bool fits_split_weight(const Conv2dProblem& z) {
  constexpr auto kWeight = Direction::backward_weight;
  if (z.stride_w > 2 || z.k != z.c || z.dilation_h != 1 || z.dilation_w != 1) return false;
  if (!fits_large(z, kWeight) || z.c * z.h * z.w * z.n >= 1 << 30) return false;
  if (shared_floats_of(split_weight_work<float>(z)) * 4 > 48 * 1024) return false;
  static KeptPlans<bool> kept;
  return *kept.get(z, kWeight, [&] {
    Cheapest<bool> splits({"conv2d", "depthwise", kWeight}, DeviceType::cuda, DType::f32);
    splits.offer(false, large_cost(z, kWeight));
    splits.offer(true, split_weight_cost(z));
    return splits.found();
  });
}

Cost split_weight_cost(const Conv2dProblem& z) {
  const SplitWeightWork<float> work = split_weight_work<float>(z);
  double met = 0;  // rows of dy whose row of x is inside the image, summed over the rows of taps
  for (int r = 0; r < work.r; ++r) {
    const int from = std::max(0, ceil_div(work.pad_top - r, work.stride_h));
    const int end = std::min(work.p, floor_div(work.h - 1 + work.pad_top - r, work.stride_h) + 1);
    met += std::max(0, end - from);
  }
  const auto element = static_cast<double>(size_of(z.dtype));
  const double blocks = number(z.c * z.r);
  const double threads = round_up(work.lanes * work.taps4, 32);
  const double tiles = number(z.n) * ceil_div(work.p, work.rows);
  const double copied = static_cast<double>(work.rows) * (work.w + work.q);
  const double copies = number(z.c * z.n) * met * (work.w + work.q);
  return {.flops = z.nominal_flops(),
          .bytes = z.nominal_bytes(),
          // 4 elements of a row of dy, multiplied by 4 taps.
          .issued = met * number(z.c * z.n) * work.pieces * work.taps4 * 16 * 2,
          .cached = copies * element,
          .schedule = "split",
          .blocks = blocks,
          .resident = number(std::max(1, std::min(cuda_device_facts().shared_bytes_per_block /
                                                      (4 * shared_floats_of(work) + 1024),
                                                  2048 / static_cast<int>(threads)))),
          .chain = tiles * ceil_div(work.rows * work.pieces, work.lanes),
          .copies = tiles * std::ceil(copied / threads),
          .waits = 2 * tiles + work.lanes,  // barriers, and sums of the lanes
          .listed_warps = copies / 32};
}

void backward_weight_by_split(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    SplitWeightWork<T> work = split_weight_work<T>(z);
    work.x = static_cast<const T*>(args.x);
    work.dy = static_cast<const T*>(args.dy);
    work.dw = static_cast<T*>(args.dw);
    work.accumulate = args.accumulate;
    LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(work.channels), static_cast<unsigned>(work.r)),
        .block = dim3(static_cast<unsigned>(round_up(work.lanes * work.taps4, 32))),
        .shared_bytes = static_cast<std::size_t>(shared_floats_of(work)) * sizeof(float)};
    shape.overlaps_previous = true;
    z.stride_w == 1 ? launch(depthwise_split_weight_kernel<T, 1>, shape, work)
                    : launch(depthwise_split_weight_kernel<T, 2>, shape, work);
  });
}

}  // namespace convscope::depthwise
