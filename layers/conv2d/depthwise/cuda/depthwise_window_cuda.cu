// SPDX-License-Identifier: Apache-2.0
// depthwise_window_cuda.cu: depthwise convolution of NCHW planes on the GPU without shared memory.
// A thread loads its window, the elements of x that a few neighbouring results read, to registers.
//
// Formula    y[n,c,p,q] = relu(b[c] + sum over r, s of w[c,0,r,s] x[n,c,p stride - pad_top + r,
//            q stride - pad_left + s] + residual[n,c,p,q]), x = 0 outside
//            dx[n,c,h,w] = sum over r, s with h + pad - r = 2 p and w + pad - s = 2 q of
//            w[c,0,r,s] dy[n,c,p,q] (stride 2)
// Textbook   for n, c, p, q:
//              y[n,c,p,q] = b[c]
//              for r, s: y[n,c,p,q] += w[c,0,r,s] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     A tile in shared memory adds latency, because a block copies, waits and then computes.
//            With one image no other block hides the latency, so it is the layer's time. Here a
//            thread computes 4 (or 2) neighbours of a row of y, in one row or two. All loads of the
//            thread's window are in flight at once, as whole units of 4 (or 2) numbers.
//            Neighbouring threads load the same units again, from L1
//              depthwise_window_kernel             y, and dx of stride 1 (rotated taps, over dy)
//              depthwise_window_parities_kernel    dx of stride 2: a thread owns 2 rows of dx. The
//                                                  pairs of tap and dy follow from the parities of
//                                                  row and column, at compile time
// Shapes     x [N,C,H,W], w [C,1,R,S], y [N,C,P,Q], f32, f16 or bf16, row-major; x, y, residual
//            aligned to the units; dy of stride 2 any alignment; sums in f32
// Supports   R = S of 3, 5, 7; stride 1 or 2; no dilation, no multiplier; pad_left = (R - 1) / 2
//            (dx of stride 2: pad_top too); rows of whole units
// Cost       FLOPs = 2 N C P Q R S; bytes = x, w, y once from memory, x about R / stride times from
//            L1; workspace none
// Numerics   one rounding per FMA, in the order b, r, s; same bits on each run; exact on integers
// Backward   dx assigned; pixels that no output reads become 0
// Choices    1 row gives the most threads, each with the fewest consecutive steps. 3x3 with stride
//            2 and many planes is limited by loads; a thread then computes 2 rows of y, which read
//            5 rows of x instead of 6
// Source     as depthwise_forward_cuda.cu; the parities as depthwise_parities_cuda.cu
// Read next  depthwise_forward_cuda.cu, which shares x between the threads of a block
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_window.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kWindowThreads = 128;  // of a block

template <class T>
struct WindowWork {
  int h = 0, w = 0, p = 0, q = 0;  // source and target planes
  int pad_top = 0;
  int channels = 1;
  int threads = 0;  // of all planes
  FastDivisor by_groups = {}, by_strips = {}, by_channels = {};
  const T* x = nullptr;
  const T* taps = nullptr;
  const T* b = nullptr;
  const T* residual = nullptr;
  T* y = nullptr;
  bool relu = false;
};

struct WindowPlace {
  int plane = 0, channel = 0, strip = 0, group = 0;
};
template <class T>
__device__ inline WindowPlace window_place(const WindowWork<T>& work, int at) {
  const int above = work.by_groups.divide(at);
  const int plane = work.by_strips.divide(above);
  return {.plane = plane,
          .channel = work.by_channels.remainder(plane),
          .strip = above - plane * work.by_strips.d,
          .group = at - above * work.by_groups.d};
}

template <class T, int kSize, int kStride, int kColumns, int kRows, bool kRotated>
__global__ void __launch_bounds__(kWindowThreads)
    depthwise_window_kernel(const __grid_constant__ WindowWork<T> work) {
  using Read = Window<kSize, kStride, kColumns, kRows>;
  constexpr int kTaps = kSize * kSize;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const WindowPlace at = window_place(work, min(index, work.threads - 1));
  const T* const x = plane_at(work.x, at.plane, work.h, work.w);
  const int p0 = at.strip * kRows;
  const int h0 = p0 * kStride - work.pad_top;
  float v[Read::kHigh][Read::kWide];
  load_window_of<Read::kUnit>(x, h0, work.h, Read::first_unit(at.group), work.w, v);
  float taps[kTaps];
  const auto load_taps = [&] {
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      taps[i] = to_float(work.taps[at.channel * kTaps + (kRotated ? kTaps - 1 - i : i)]);
    }
  };
  if (kTaps <= 25) load_taps();
  keep_loads_together();
  if (kTaps > 25) load_taps();
  if (index >= work.threads) return;
  const float bias = work.b != nullptr ? to_float(work.b[at.channel]) : 0.0f;

  float sums[kRows][kColumns];
#pragma unroll
  for (int i = 0; i < Read::kHigh; ++i) {
#pragma unroll
    for (int r = 0; r < kSize; ++r) {
      const int o = (i - r) / kStride;
      if (i < r || (i - r) % kStride != 0 || o >= kRows) continue;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        if (r == 0) sums[o][j] = bias;
#pragma unroll
        for (int s = 0; s < kSize; ++s) {
          sums[o][j] = fmaf(v[i][Read::kOffset + j * kStride + s], taps[r * kSize + s], sums[o][j]);
        }
      }
    }
  }

  const std::int64_t to =
      static_cast<std::int64_t>(at.plane) * (work.p * work.q) + p0 * work.q + at.group * kColumns;
#pragma unroll
  for (int o = 0; o < kRows; ++o) {
    if (p0 + o >= work.p) break;
    const std::int64_t here = to + o * work.q;
    float beside[kColumns] = {};
    if (work.residual != nullptr) load_unit<kColumns>(work.residual + here, beside);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      // Rounds y to its type before the residual is added. A separate kernel for the addition would
      // also read the rounded y, so both give the same bits.
      if (work.residual != nullptr) {
        sums[o][j] = to_float(from_float<T>(sums[o][j])) + beside[j];
      }
      sums[o][j] = finished(sums[o][j], work.relu);
    }
    store_unit<kColumns>(work.y + here, sums[o]);
  }
}

// This kernel computes dx: its h and w are the sizes of dy, and p and q are those of dx.
template <class T, int kSize, int kColumns>
__global__ void __launch_bounds__(kWindowThreads)
    depthwise_window_parities_kernel(const __grid_constant__ WindowWork<T> work) {
  constexpr int kRows = 2;  // of dx
  constexpr int kPad = (kSize - 1) / 2;
  // Row i of dx and tap r use row (i + pad - r) / 2 of dy when this is a whole number. kFirst is
  // the first such row, relative to the thread's first row.
  constexpr int kFirst = -(kPad / 2);
  constexpr int kHigh = (kRows - 1 + kPad) / 2 - kFirst + 1;
  constexpr int kWide = (kColumns - 1 + kPad) / 2 - kFirst + 1;
  constexpr int kTaps = kSize * kSize;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const WindowPlace at = window_place(work, min(index, work.threads - 1));
  const T* const dy = plane_at(work.x, at.plane, work.h, work.w);
  const int h0 = at.strip + kFirst;
  const int w0 = at.group * (kColumns / 2) + kFirst;
  float v[kHigh][kWide];
#pragma unroll
  for (int i = 0; i < kHigh; ++i) {
    const T* const row = dy + clamped(h0 + i, work.h) * work.w;
#pragma unroll
    for (int j = 0; j < kWide; ++j) v[i][j] = to_float(row[clamped(w0 + j, work.w)]);
  }
#pragma unroll
  for (int i = 0; i < kHigh; ++i) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      if (!is_inside(h0 + i, work.h) || !is_inside(w0 + j, work.w)) v[i][j] = 0;
    }
  }
  keep_loads_together();
  if (index >= work.threads) return;
  const T* const taps = work.taps + at.channel * kTaps;
  float sums[kRows][kColumns] = {};
#pragma unroll
  for (int r = 0; r < kSize; ++r) {
#pragma unroll
    for (int s = 0; s < kSize; ++s) {
      const float tap = to_float(taps[r * kSize + s]);
#pragma unroll
      for (int i = (r + kPad) % 2; i < kRows; i += 2) {
#pragma unroll
        for (int j = (s + kPad) % 2; j < kColumns; j += 2) {
          sums[i][j] =
              fmaf(v[(i + kPad - r) / 2 - kFirst][(j + kPad - s) / 2 - kFirst], tap, sums[i][j]);
        }
      }
    }
  }
  T* const dx = plane_at(work.y, at.plane, work.p, work.q);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int h = at.strip * kRows + i;
    if (h < work.p) store_unit<kColumns>(dx + h * work.q + at.group * kColumns, sums[i]);
  }
}

// ---- launchers ---------------------------------------------------------------------------------

template <class T>
WindowWork<T> window_work(const PlaneMap& map, std::int64_t planes, std::int64_t channels, int rows,
                          int columns) {
  const int groups = map.q / columns;
  const int strips = ceil_div(map.p, rows);
  return {.h = map.h,
          .w = map.w,
          .p = map.p,
          .q = map.q,
          .pad_top = map.pad_top,
          .channels = static_cast<int>(channels),
          .threads = static_cast<int>(planes * strips * groups),
          .by_groups = FastDivisor(groups),
          .by_strips = FastDivisor(strips),
          .by_channels = FastDivisor(static_cast<int>(channels))};
}

LaunchShape shape_of_threads(int threads) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(threads, kWindowThreads))),
                    .block = dim3(kWindowThreads)};
  shape.overlaps_previous = true;
  return shape;
}

// Tells whether there are at most two waves of threads. One wave is the number of threads whose
// windows fit into the registers of all SMs.
bool is_few(std::int64_t threads, int size) {
  const int at_once = size == 3 ? 1024 : size == 5 ? 768 : 640;
  return threads <= std::int64_t{cuda_device_facts().multiprocessors} * 2 * at_once;
}

// The columns and rows of y that a thread computes.
struct WindowShape {
  int columns = 0, rows = 1;
};
template <class T>
WindowShape window_shape(const PlaneMap& map, std::int64_t planes) {
  const int columns = window_columns(map);
  const std::int64_t threads = planes * map.p * (map.q / columns);
  // With stride 2 and few threads, a thread computes only 2 columns, because twice as many threads
  // are then faster.
  const bool lonely = map.stride == 2 && map.size > 3 &&
                      threads <= std::int64_t{cuda_device_facts().multiprocessors} * 256;
  if (lonely) return {.columns = 2};
  const bool many = map.stride == 2 && map.size == 3 && !is_few(threads, map.size);
  return {.columns = columns, .rows = many && (sizeof(T) == 2 || columns == 2) ? 2 : 1};
}

template <class T, bool kRotated>
void launch_window(const PlaneMap& map, std::int64_t planes, const WindowWork<T>& tensors) {
  const WindowShape shape = window_shape<T>(map, planes);
  const auto start = [&](auto size, auto stride, auto columns, auto rows) {
    WindowWork<T> work = window_work<T>(map, planes, tensors.channels, rows(), columns());
    work.x = tensors.x, work.taps = tensors.taps, work.b = tensors.b, work.y = tensors.y;
    work.residual = tensors.residual, work.relu = tensors.relu;
    launch(depthwise_window_kernel<T, size(), stride(), columns(), rows(), kRotated>,
           shape_of_threads(work.threads), work);
  };
  const std::integral_constant<int, 1> one;
  const std::integral_constant<int, 2> two;
  const std::integral_constant<int, 4> four;
  const auto with_stride = [&](auto size, auto stride) {
    if constexpr (size() == 3 && stride() == 2) {
      if (shape.rows == 2) {
        return shape.columns == 2 ? start(size, stride, two, two) : start(size, stride, four, two);
      }
    }
    shape.columns == 2 ? start(size, stride, two, one) : start(size, stride, four, one);
  };
  const auto with_size = [&](auto size) {
    if constexpr (!kRotated) {
      if (map.stride == 2) return with_stride(size, two);
    }
    with_stride(size, one);
  };
  map.size == 3   ? with_size(std::integral_constant<int, 3>())
  : map.size == 5 ? with_size(std::integral_constant<int, 5>())
                  : with_size(std::integral_constant<int, 7>());
}

bool fits_window_of(const PlaneMap& map, std::int64_t planes) {
  const int columns = window_columns(map);
  if (columns == 0 || planes * map.p * map.q >= std::int64_t{1} << 30) return false;
  return (map.size == 3 && map.stride == 2) || is_few(planes * map.p * (map.q / columns), map.size);
}

}  // namespace

bool fits_window(const Conv2dProblem& z, Direction direction, const void* source,
                 const void* target, const void* residual) {
  const PlaneMap map = plane_map(z);
  const std::int64_t planes = z.n * z.c;
  if (!is_whole(target) || !is_whole(residual)) return false;
  if (direction == Direction::backward_data && map.stride == 2) {
    const int pad = (map.size - 1) / 2;
    const int columns = unit_of_rows(map.w);
    return columns > 0 && map.pad_left == pad && map.pad_top == pad &&
           is_few(planes * ceil_div(map.h, 2) * (map.w / columns), map.size);
  }
  if (!is_whole(source)) return false;
  return fits_window_of(direction == Direction::forward ? map : rotated(map), planes);
}

void forward_by_window(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_window<T, false>(plane_map(z), z.n * z.c,
                            {.channels = static_cast<int>(z.c),
                             .x = static_cast<const T*>(args.x),
                             .taps = static_cast<const T*>(args.w),
                             .b = static_cast<const T*>(args.b),
                             .residual = static_cast<const T*>(args.epilogue.residual),
                             .y = static_cast<T*>(args.y),
                             .relu = args.epilogue.relu});
  });
}

void backward_data_by_window(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const PlaneMap map = plane_map(z);
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    const WindowWork<T> tensors{.channels = static_cast<int>(z.c),
                                .x = static_cast<const T*>(args.dy),
                                .taps = static_cast<const T*>(args.w),
                                .y = static_cast<T*>(args.dx)};
    if (map.stride == 1) return launch_window<T, true>(rotated(map), z.n * z.c, tensors);
    const PlaneMap back{.h = map.p, .w = map.q, .p = map.h, .q = map.w, .size = map.size};
    const int columns = unit_of_rows(map.w);
    WindowWork<T> work = window_work<T>(back, z.n * z.c, z.c, 2, columns);
    work.x = tensors.x, work.taps = tensors.taps, work.y = tensors.y;
    const auto start = [&](auto size) {
      columns == 4 ? launch(depthwise_window_parities_kernel<T, size(), 4>,
                            shape_of_threads(work.threads), work)
                   : launch(depthwise_window_parities_kernel<T, size(), 2>,
                            shape_of_threads(work.threads), work);
    };
    map.size == 3   ? start(std::integral_constant<int, 3>())
    : map.size == 5 ? start(std::integral_constant<int, 5>())
                    : start(std::integral_constant<int, 7>());
  });
}

}  // namespace convscope::depthwise
