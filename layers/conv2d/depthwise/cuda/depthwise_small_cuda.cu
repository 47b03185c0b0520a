// SPDX-License-Identifier: Apache-2.0
// depthwise_small_cuda.cu: depthwise convolution of 7x7 and 14x14 planes on the GPU. A block copies
// several whole planes to shared memory, and a thread keeps whole rows in registers.
//
// Formula    y[n,c,p,q] = relu(b[c] + sum over r, s of w[c,0,r,s] x[n,c,p stride - pad + r,
//            q stride - pad + s] + residual[n,c,p,q]), pad = (R - 1) / 2, x = 0 outside
// Textbook   for n, c, p, q:
//              y[n,c,p,q] = b[c]
//              for r, s: y[n,c,p,q] += w[c,0,r,s] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     Planes of NCHW are consecutive in memory, so a block copies 64 (or 32) planes as one
//            run, 16 bytes at a time, without index arithmetic. A thread computes 7 rows of y (4 of
//            7x7 in fp16/bf16), with all columns. The width is a compile-time constant, so products
//            with zeros beyond the border are not generated. The rows of y are written to shared
//            memory, and from there to memory as one run
// Shapes     x [N,C,H,W] with H = W of 7 or 14, y [N,C,P,Q], w [C,1,R,S], f32, f16 or bf16,
//            row-major, x, y 16-byte aligned; sums in f32
// Supports   R = S of 3, 5, 7; 7x7 to 7x7, 14x14 to 14x14, and 14x14 to 7x7 with stride 2; pad
//            (R - 1) / 2, no multiplier
// Cost       FLOPs = less than 2 N C P Q R S; bytes = x, w, y once; workspace none; memory-bound
// Numerics   one rounding per FMA, in the order b, r, s; same bits on each run; exact on integers
// Backward   stride 1: dx is computed by this kernel from dy, with the taps in reverse order
//            (rotated)
// Choices    7 rows: the 14x14 strips of neighbouring threads are 98 floats apart, 7x7 planes 49,
//            so loads of 8 and of 4 bytes have no bank conflicts. 64 threads: a block has 12.5 KiB
//            of x (25 of 14x14) and as much of y, so 9 (4) blocks fit on an SM. With 16384 planes
//            an SM gets 4 blocks
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_forward_cuda.cu, for all other planes
#include "framework/cuda/async_copy.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kThreads = 64;
// Returns how many rows of y a thread computes: 7, or 4 for 7x7 planes in fp16/bf16. In the second
// case two threads share a plane, and both compute its middle row. With half the bytes per element,
// twice as many threads must have loads in flight.
template <class T, int kOut>
constexpr int rows_of() {
  return kOut == 7 && sizeof(T) == 2 ? 4 : 7;
}
// Returns the number of threads that compute a plane.
template <class T, int kOut>
constexpr int strips_of() {
  return ceil_div(kOut, rows_of<T, kOut>());
}

template <class T>
struct SmallWork {
  std::uint32_t planes = 0;  // N C
  std::uint32_t channels = 1;
  const T* x = nullptr;
  const T* w = nullptr;
  const T* b = nullptr;
  const T* residual = nullptr;
  T* y = nullptr;
  bool relu = false;
};

template <class T>
struct alignas(16) Run {  // 16 bytes
  T v[16 / sizeof(T)];
};

// Loads a row of kSide elements, or zeros.
template <int kSide, class T>
__device__ inline void load_row(const T* row, bool inside, float (&v)[kSide]) {
#pragma unroll
  for (int i = 0; i < kSide; ++i) v[i] = 0;
  if (!inside) return;
  if constexpr (kSide % 2 == 0) {
#pragma unroll
    for (int i = 0; i < kSide; i += 2) load_unit<2>(row + i, v + i);
  } else {
#pragma unroll
    for (int i = 0; i < kSide; ++i) v[i] = to_float(row[i]);
  }
}

template <class T, int kSide, int kSize, int kStride, bool kRotated>
__global__ void __launch_bounds__(kThreads)
    depthwise_small_kernel(const __grid_constant__ SmallWork<T> work) {
  constexpr int kOut = (kSide - 1) / kStride + 1;  // rows and columns of y
  constexpr int kRows = rows_of<T, kOut>();
  constexpr int kStrips = strips_of<T, kOut>();
  constexpr int kStep = kOut - kRows;  // rows between strips
  constexpr int kPlanes = kThreads / kStrips;
  constexpr int kArea = kSide * kSide, kOutArea = kOut * kOut;
  constexpr int kPad = (kSize - 1) / 2;
  constexpr int kTaps = kSize * kSize;
  constexpr int kUnit = 16 / sizeof(T);  // elements of a copy
  T* const from = dynamic_shared<T>();   // [planes, side, side]
  T* const to = from + kPlanes * kArea;  // [planes, out, out]
  const int me = static_cast<int>(threadIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernel();

  const std::uint32_t first = blockIdx.x * kPlanes;
  const std::uint32_t left = work.planes - first;
  const int planes = left < kPlanes ? static_cast<int>(left) : kPlanes;
  const T* const x = work.x + static_cast<std::uint64_t>(first) * kArea;
  int count = planes * kArea;  // elements
#pragma unroll 4
  for (int i = kUnit * me; i + kUnit <= count; i += kUnit * kThreads) {
    async_copy<16>(from + i, x + i);
  }
  if (me < count % kUnit) from[count - 1 - me] = x[count - 1 - me];
  async_copy_commit();

  const int plane = me / kStrips;
  const int strip = me % kStrips;
  float taps[kTaps] = {};
  float bias = 0;
  if (plane < planes) {
    const std::uint32_t channel = (first + plane) % work.channels;
    const T* const w = work.w + channel * kTaps;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) taps[i] = to_float(w[kRotated ? kTaps - 1 - i : i]);
    if (work.b != nullptr) bias = to_float(work.b[channel]);
  }
  async_copy_wait<0>();
  __syncthreads();

  if (plane < planes) {
    const T* const rows = from + plane * kArea + strip * kStep * kStride * kSide;
    float sums[kRows][kOut];
#pragma unroll
    for (int i = 0; i < (kRows - 1) * kStride + kSize; ++i) {
      const int row = i - kPad;  // of the strip
      if (kStrips == 1 && (row < 0 || row >= kSide)) continue;
      const int plane_row = strip * kStep * kStride + row;
      const bool inside = plane_row >= 0 && plane_row < kSide;
      float v[kSide];
      load_row<kSide>(rows + row * kSide, inside, v);
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        if (i < r || (i - r) % kStride != 0) continue;
        const int o = (i - r) / kStride;
        if (o >= kRows) continue;
        // The first row that reaches o starts with the bias.
        const bool begins = r == (kStrips == 1 && o * kStride < kPad ? kPad - o * kStride : 0);
#pragma unroll
        for (int j = 0; j < kOut; ++j) {
          if (begins) sums[o][j] = bias;
#pragma unroll
          for (int s = 0; s < kSize; ++s) {
            const int column = j * kStride + s - kPad;
            if (column < 0 || column >= kSide) continue;
            sums[o][j] = fmaf(v[column], taps[r * kSize + s], sums[o][j]);
          }
        }
      }
    }
    T* const out = to + plane * kOutArea + strip * kStep * kOut;
#pragma unroll
    for (int o = 0; o < kRows; ++o) {
      if (o < kStrips * kRows - kOut && strip > 0) continue;  // the strip above stores it
#pragma unroll
      for (int j = 0; j < kOut; j += 2 - kOut % 2) {
        if constexpr (kOut % 2 == 0) {
          store_unit<2>(out + o * kOut + j, sums[o] + j);
        } else {
          out[o * kOut + j] = from_float<T>(sums[o][j]);
        }
      }
    }
  }
  __syncthreads();

  const std::uint64_t run = static_cast<std::uint64_t>(first) * kOutArea;
  count = planes * kOutArea;
  T* const y = work.y + run;
  const T* const residual = work.residual == nullptr ? nullptr : work.residual + run;
  const auto finish = [&](T sum, int i) {
    return from_float<T>(finished(to_float(sum), residual, i, work.relu));
  };
#pragma unroll 4
  for (int i = kUnit * me; i + kUnit <= count; i += kUnit * kThreads) {
    Run<T> out = *reinterpret_cast<const Run<T>*>(to + i);
    if (residual != nullptr || work.relu) {
#pragma unroll
      for (int j = 0; j < kUnit; ++j) out.v[j] = finish(out.v[j], i + j);
    }
    *reinterpret_cast<Run<T>*>(y + i) = out;
  }
  if (me < count % kUnit) y[count - 1 - me] = finish(to[count - 1 - me], count - 1 - me);
}

// ---- launchers ---------------------------------------------------------------------------------

template <class T, int kSide, int kSize, int kStride, bool kRotated>
void launch_small(const SmallWork<T>& work) {
  constexpr int kOut = (kSide - 1) / kStride + 1;
  constexpr int kPlanes = kThreads / strips_of<T, kOut>();
  LaunchShape shape{.grid = dim3(ceil_div(work.planes, kPlanes)),
                    .block = dim3(kThreads),
                    .shared_bytes = kPlanes * (kSide * kSide + kOut * kOut) * sizeof(T)};
  shape.overlaps_previous = true;
  launch(depthwise_small_kernel<T, kSide, kSize, kStride, kRotated>, shape, work);
}

template <class T, int kSide, int kStride, bool kRotated>
void launch_size(const SmallWork<T>& work, std::int64_t size) {
  size == 3   ? launch_small<T, kSide, 3, kStride, kRotated>(work)
  : size == 5 ? launch_small<T, kSide, 5, kStride, kRotated>(work)
              : launch_small<T, kSide, 7, kStride, kRotated>(work);
}

template <class T, bool kRotated>
void small_planes(const SmallWork<T>& work, const Conv2dProblem& z) {
  if constexpr (!kRotated) {
    if (z.stride_h == 2) return launch_size<T, 14, 2, false>(work, z.r);
  }
  z.h == 14 ? launch_size<T, 14, 1, kRotated>(work, z.r)
            : launch_size<T, 7, 1, kRotated>(work, z.r);
}

}  // namespace

bool fits_small_planes(const Conv2dProblem& z, const void* source, const void* target) {
  // A block has 32 planes and its threads run long, so only many planes fill the device.
  const bool many = z.r == 3 || z.n * z.c >= 4096;
  const std::int64_t pad = (z.r - 1) / 2;
  return z.h == z.w && ((z.stride_h == 1 && z.h == 7) || (z.h == 14 && many)) && z.pad_top == pad &&
         z.pad_bottom == pad && z.pad_left == pad && z.pad_right == pad &&
         is_aligned(static_cast<const float*>(source), 4) &&
         is_aligned(static_cast<const float*>(target), 4);
}

void forward_of_small_planes(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    small_planes<T, false>({.planes = static_cast<std::uint32_t>(z.n * z.c),
                            .channels = static_cast<std::uint32_t>(z.c),
                            .x = static_cast<const T*>(args.x),
                            .w = static_cast<const T*>(args.w),
                            .b = static_cast<const T*>(args.b),
                            .residual = static_cast<const T*>(args.epilogue.residual),
                            .y = static_cast<T*>(args.y),
                            .relu = args.epilogue.relu},
                           z);
  });
}

void backward_data_of_small_planes(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    small_planes<T, true>({.planes = static_cast<std::uint32_t>(z.n * z.c),
                           .channels = static_cast<std::uint32_t>(z.c),
                           .x = static_cast<const T*>(args.dy),
                           .w = static_cast<const T*>(args.w),
                           .y = static_cast<T*>(args.dx)},
                          z);
  });
}

}  // namespace convscope::depthwise
