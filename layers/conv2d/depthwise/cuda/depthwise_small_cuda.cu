// SPDX-License-Identifier: Apache-2.0
// depthwise_small_cuda.cu: depthwise convolution of the smallest planes of image networks, 7x7 and
// 14x14, on the GPU: a run of whole planes in shared memory, whole rows in the registers of a
// thread.
//
// Formula    y[n,c,p,q] = relu(b[c] + sum over r, s of w[c,0,r,s] x[n,c,p - pad + r,q - pad + s] +
//            residual[n,c,p,q]), pad = (R - 1) / 2, x = 0 outside
// Textbook   for n, c, p, q:
//              y[n,c,p,q] = b[c]
//              for r, s: y[n,c,p,q] += w[c,0,r,s] * x[n,c,p+r-pad,q+s-pad]
// Plan       planes of NCHW lie one behind the other, so a block copies 64 (or 32) of them as one
//            run, 16 bytes at a time, without any index arithmetic. A thread makes 7 rows of y, all
//            columns of it: the width is a compile-time constant, so columns beyond the border are
//            products that are not there, not zeros to be read. The rows of y go back into shared
//            memory, and from there to memory as one run
// Shapes     x, y [N,C,H,W] with H = W of 7 or 14, w [C,1,R,S], f32 row-major, x, y 16-byte aligned
// Supports   7x7 with R = S of 3, 5, 7; 14x14 with 3; stride 1, pad (R - 1) / 2, no multiplier
// Cost       FLOPs = less than 2 N C P Q R S; bytes = x, w, y once; workspace none; memory-bound
// Numerics   one rounding per FMA, in the order b, r, s; same bits on each run; exact on integers
// Backward   dx is this kernel over dy with the taps in reverse order (turned)
// Choices    7 rows: the 14x14 strips of neighbouring threads are 98 floats apart, 7x7 planes 49:
//            loads of 8 and of 4 bytes meet no bank twice. 64 threads: 12.5 KiB of x (25 of 14x14)
//            and as much of y, so 9 (4) blocks fit a multiprocessor, which gets 4 of them at 16384
//            planes
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_forward_cuda.cu, for all other planes
#include "framework/cuda/async_copy.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kThreads = 64;
constexpr int kRows = 7;  // of y in a thread

struct SmallWork {
  std::uint32_t planes = 0;  // N C
  std::uint32_t channels = 1;
  const float* x = nullptr;
  const float* w = nullptr;
  const float* b = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  bool relu = false;
};

// A row of kSide floats, or zeros.
template <int kSide>
__device__ inline void load_row(const float* row, bool inside, float (&v)[kSide]) {
  if constexpr (kSide % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kSide / 2; ++i) {
      const float2 two = inside ? *reinterpret_cast<const float2*>(row + 2 * i) : make_float2(0, 0);
      v[2 * i] = two.x, v[2 * i + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kSide; ++i) v[i] = inside ? row[i] : 0.0f;
  }
}

template <int kSide, int kSize, bool kTurned>
__global__ void __launch_bounds__(kThreads)
    depthwise_small_kernel(const __grid_constant__ SmallWork work) {
  constexpr int kStrips = kSide / kRows;
  constexpr int kPlanes = kThreads / kStrips;
  constexpr int kArea = kSide * kSide;
  constexpr int kPad = (kSize - 1) / 2;
  constexpr int kTaps = kSize * kSize;
  float* const from = dynamic_shared<float>();  // [planes, side, side]
  float* const to = from + kPlanes * kArea;     // the same
  const int me = static_cast<int>(threadIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernel();

  const std::uint32_t first = blockIdx.x * kPlanes;
  const std::uint32_t left = work.planes - first;
  const int count = (left < kPlanes ? static_cast<int>(left) : kPlanes) * kArea;  // floats
  const std::uint64_t run = static_cast<std::uint64_t>(first) * kArea;
  const float* const x = work.x + run;
#pragma unroll 4
  for (int i = 4 * me; i + 3 < count; i += 4 * kThreads) async_copy<16>(from + i, x + i);
  if (me < count % 4) async_copy<4>(from + count - 1 - me, x + count - 1 - me);
  async_copy_commit();

  const int plane = me / kStrips;
  const int strip = me % kStrips;
  float taps[kTaps] = {};
  float bias = 0;
  if (plane * kArea < count) {
    const std::uint32_t channel = (first + plane) % work.channels;
    const float* const w = work.w + channel * kTaps;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) taps[i] = w[kTurned ? kTaps - 1 - i : i];
    if (work.b != nullptr) bias = work.b[channel];
  }
  async_copy_wait<0>();
  __syncthreads();

  if (plane * kArea < count) {
    const int at = plane * kArea + strip * kRows * kSide;
    float sums[kRows][kSide];
#pragma unroll
    for (int i = 0; i < kRows + 2 * kPad; ++i) {
      const int row = i - kPad;  // of the strip
      if (kStrips == 1 && (row < 0 || row >= kSide)) continue;
      const bool inside = (row >= 0 || strip > 0) && (row < kRows || strip < kStrips - 1);
      float v[kSide];
      load_row<kSide>(from + at + row * kSide, inside, v);
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        const int o = i - r;
        if (o < 0 || o >= kRows) continue;
        // The first row that reaches o: it begins with the bias.
        const bool begins = r == 0 || (kStrips == 1 && row == 0);
#pragma unroll
        for (int j = 0; j < kSide; ++j) {
          if (begins) sums[o][j] = bias;
#pragma unroll
          for (int s = 0; s < kSize; ++s) {
            if (j + s - kPad < 0 || j + s - kPad >= kSide) continue;
            sums[o][j] = fmaf(v[j + s - kPad], taps[r * kSize + s], sums[o][j]);
          }
        }
      }
    }
#pragma unroll
    for (int o = 0; o < kRows; ++o) {
#pragma unroll
      for (int j = 0; j < kSide; ++j) to[at + o * kSide + j] = sums[o][j];
    }
  }
  __syncthreads();

  float* const y = work.y + run;
  const float* const residual = work.residual == nullptr ? nullptr : work.residual + run;
  const auto finish = [&](float sum, int i) { return finished(sum, residual, i, work.relu); };
#pragma unroll 4
  for (int i = 4 * me; i + 3 < count; i += 4 * kThreads) {
    float4 out = *reinterpret_cast<const float4*>(to + i);
    if (residual != nullptr || work.relu) {
      out = make_float4(finish(out.x, i), finish(out.y, i + 1), finish(out.z, i + 2),
                        finish(out.w, i + 3));
    }
    *reinterpret_cast<float4*>(y + i) = out;
  }
  if (me < count % 4) y[count - 1 - me] = finish(to[count - 1 - me], count - 1 - me);
}

// ---- launchers ---------------------------------------------------------------------------------

template <int kSide, int kSize, bool kTurned>
void launch_small(const SmallWork& work) {
  constexpr int kPlanes = kThreads / (kSide / kRows);
  LaunchShape shape{.grid = dim3(ceil_div(work.planes, kPlanes)),
                    .block = dim3(kThreads),
                    .shared_bytes = 2 * kPlanes * kSide * kSide * sizeof(float)};
  shape.overlaps_previous = true;
  launch(depthwise_small_kernel<kSide, kSize, kTurned>, shape, work);
}

template <bool kTurned>
void small_planes(const SmallWork& work, const Conv2dProblem& z) {
  z.h == 14  ? launch_small<14, 3, kTurned>(work)
  : z.r == 3 ? launch_small<7, 3, kTurned>(work)
  : z.r == 5 ? launch_small<7, 5, kTurned>(work)
             : launch_small<7, 7, kTurned>(work);
}

}  // namespace

bool fits_small_planes(const Conv2dProblem& z, const void* source, const void* target) {
  const std::int64_t pad = (z.r - 1) / 2;
  return z.h == z.w && z.stride_h == 1 && (z.h == 7 || (z.h == 14 && z.r == 3)) &&
         z.pad_top == pad && z.pad_bottom == pad && z.pad_left == pad && z.pad_right == pad &&
         is_aligned(static_cast<const float*>(source), 4) &&
         is_aligned(static_cast<const float*>(target), 4);
}

void forward_of_small_planes(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  small_planes<false>({.planes = static_cast<std::uint32_t>(z.n * z.c),
                       .channels = static_cast<std::uint32_t>(z.c),
                       .x = static_cast<const float*>(args.x),
                       .w = static_cast<const float*>(args.w),
                       .b = static_cast<const float*>(args.b),
                       .residual = static_cast<const float*>(args.epilogue.residual),
                       .y = static_cast<float*>(args.y),
                       .relu = args.epilogue.relu},
                      z);
}

void backward_data_of_small_planes(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  small_planes<true>({.planes = static_cast<std::uint32_t>(z.n * z.c),
                      .channels = static_cast<std::uint32_t>(z.c),
                      .x = static_cast<const float*>(args.dy),
                      .w = static_cast<const float*>(args.w),
                      .y = static_cast<float*>(args.dx)},
                     z);
}

}  // namespace convscope::depthwise
