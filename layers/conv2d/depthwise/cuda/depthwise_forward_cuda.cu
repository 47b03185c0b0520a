// SPDX-License-Identifier: Apache-2.0
// depthwise_forward_cuda.cu: depthwise convolution of NCHW planes on the GPU. Tiles of whole planes
// or of row bands are in shared memory, and each thread moves a window down 4 columns.
//
// Formula    y[n,k,p,q] = relu(b[k] + sum over r, s of w[k,0,r,s] x[n,k,p stride - pad_top + r,
//            q stride - pad_left + s] + residual[n,k,p,q]), x = 0 outside
// Textbook   for n, k, p, q:
//              y[n,k,p,q] = b[k]
//              for r, s: y[n,k,p,q] += w[k,0,r,s] * x[n,k,p*stride+r-pad,q*stride+s-pad]
// Method     A block copies its tile of x with a border of zeros into shared memory
//            (depthwise_tiling.h). The block itself does not overlap copies and products: while it
//            computes, the other blocks of the SM load and store. A thread computes 7 rows x 4
//            columns of y. The thread reads each row of the tile once, as 16-byte units, and adds
//            its products to the R rows of accumulators that use it. All loops over rows, taps and
//            columns are unrolled, so accumulators and taps are in registers. A finished row of 4
//            is stored at once. If rows of y are not a multiple of 16 bytes, they are gathered in
//            shared memory and stored as one run
// Shapes     x [N,C,H,W], w [C,1,R,S], y [N,C,P,Q], f32, f16 or bf16, row-major; sums in f32. Any
//            alignment; when W, Q are multiples of 4 and the bases aligned, 4 elements at a time
//            are copied asynchronously
// Supports   R = S of 3, 5, 7; stride 1 or 2; no dilation, no multiplier; tile fits shared memory
// Cost       FLOPs = 2 N C P Q R S; bytes = x, w, y once; workspace none. 3x3 has 18 FLOPs for 8
//            bytes and is memory-bound. 7x7 has 98 FLOPs for 8 bytes, above the ridge of f32 (51
//            TFLOP/s : 4.3 TB/s = 12), so the FMAs that the SMs issue limit it
// Backward   stride 1: dx is computed by this kernel from dy, with the taps in reverse order
//            (rotated)
// Choices    7 rows divide the maps of ImageNet; a strip of 7 rows reads 7 + R - 1 rows. 4 columns
//            make one 16-byte store, and S + 3 floats are read for 4 S products. Blocks have 128
//            threads. For R = 3, 5, 7 an SM holds 8, 5 and 4 blocks with 64, 96 and 128 registers;
//            9 + 12, 25 + 20 and 49 + 28 of them are taps and accumulators, 6 to 10 a window
// Source     W. Luo et al. 2019 (PyTorch's DepthwiseConv2d.cu) has one thread for each output; G.
//            Lu, W. Zhang, Z. Wang 2021: Optimizing Depthwise Separable Convolution Operations on
//            GPUs, IEEE TPDS
// Read next  depthwise_elements_cuda.cu; depthwise_weight_cuda.cu
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::depthwise {
namespace {

// Returns the rows of y in a strip.
constexpr int rows_of(int stride) { return stride == 1 ? 7 : 4; }

template <class T>
struct ForwardWork {
  DepthwiseTiling tiling = {};
  std::int64_t images = 0;
  int channels = 1;
  const T* x = nullptr;
  const T* w = nullptr;
  const T* b = nullptr;
  const T* residual = nullptr;
  T* y = nullptr;
  // Number of elements of one store to y. If it is 0, y is first collected in shared memory. With
  // stride 1 the kernel uses kUnit, the number of elements of one copy of x, instead.
  int store_unit = 0;
  bool relu = false;
};

constexpr int blocks_wanted(int size) { return size == 3 ? 8 : size == 5 ? 5 : 4; }

template <class T, int kSize, int kStride, int kUnit, bool kRotated>
__global__ void __launch_bounds__(DepthwiseTiling::kThreads, blocks_wanted(kSize))
    depthwise_forward_kernel(const __grid_constant__ ForwardWork<T> work) {
  constexpr bool kAligned = kUnit > 0;
  constexpr int kOffset = kAligned ? DepthwiseTiling::kLeftMargin - (kSize - 1) / 2 : 0;
  constexpr int kWindow = 3 * kStride + kSize;
  constexpr int kTaps = kSize * kSize;
  constexpr int kRows = rows_of(kStride);
  const DepthwiseTiling& t = work.tiling;
  const int store_unit = kStride == 1 ? kUnit : work.store_unit;
  let_next_kernel_start();
  wait_for_previous_kernel();
  T* const tile = dynamic_shared<T>();       // [planes, rows, pitch]
  T* const staged = tile + t.tile_floats();  // the run of y
  const DepthwiseJob job =
      depthwise_job(t, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y),
                    static_cast<int>(blockIdx.x), work.channels);
  const TargetRun<T> run = target_run(t, job, work.y);
  if constexpr (kAligned) start_aligned_tile<kUnit>(t, job, work.x, tile);

  // A thread has several items only if the tile is one plane, so all items of a thread have the
  // same channel.
  int index = static_cast<int>(threadIdx.x);
  DepthwiseItem item = depthwise_item(t, index);
  float taps[kTaps] = {};
  float bias = 0;
  if (item.plane < job.planes) {
    const int channel = job.channel + item.plane;
    const T* const w = work.w + channel * kTaps;
#pragma unroll
    for (int i = 0; i < kTaps; ++i) taps[i] = to_float(w[kRotated ? kTaps - 1 - i : i]);
    if (work.b != nullptr) bias = to_float(work.b[channel]);
  }
  if constexpr (kAligned) {
    wait_for_tile();
  } else {
    scatter_whole_tile(t, job, work.x, tile);
  }

  for (; index < t.items(); index += static_cast<int>(blockDim.x)) {
    item = depthwise_item(t, index);
    if (item.plane >= job.planes) break;
    const T* const from = tile + (item.plane * t.rows + item.strip * kRows * kStride) * t.pitch +
                          4 * kStride * item.group;
    const int p0 = job.out_row + item.strip * kRows;
    const int at = (item.plane * t.out_h + p0 - run.first_row) * t.out_w + 4 * item.group;
    const int rows = t.out_h - p0;
    const int columns = t.out_w - 4 * item.group;
    T* const y = run.to + at;
    const T* const residual = work.residual == nullptr ? nullptr : work.residual + (y - work.y);
    const bool plain = residual == nullptr && !work.relu;
    T* const stage = staged + phase_of(run.to) + at;
    float sums[kRows][4];
#pragma unroll
    for (int i = 0; i < (kRows - 1) * kStride + kSize; ++i) {
      float v[kWindow];
      load_window<kOffset, 4>(from + i * t.pitch, v);
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        const int o = (i - r) / kStride;
        if (i < r || (i - r) % kStride != 0 || o >= kRows) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (r == 0) sums[o][j] = bias;
#pragma unroll
          for (int s = 0; s < kSize; ++s) {
            sums[o][j] = fmaf(v[j * kStride + s], taps[r * kSize + s], sums[o][j]);
          }
        }
      }
      const int done = (i - kSize + 1) / kStride;
      if (i < kSize - 1 || (i - kSize + 1) % kStride != 0 || done >= rows) continue;
      const int below = done * t.out_w;
      if (!plain) {
        float more[4] = {};
        if (residual != nullptr) {
          store_unit == 4   ? load_group<4>(residual + below, columns, more)
          : store_unit == 2 ? load_group<2>(residual + below, columns, more)
                            : load_group<0>(residual + below, columns, more);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          // Rounds y to its type before the residual is added. A separate kernel for the addition
          // would also read the rounded y, so both give the same bits.
          if (residual != nullptr) {
            sums[done][j] = to_float(from_float<T>(sums[done][j])) + more[j];
          }
          sums[done][j] = finished(sums[done][j], work.relu);
        }
      }
      store_unit == 4   ? store_group<4>(y + below, columns, sums[done])
      : store_unit == 2 ? store_group<2>(y + below, columns, sums[done])
                        : store_group<0>(stage + below, columns, sums[done]);
    }
  }
  if (store_unit == 0) {
    __syncthreads();
    store_run(run, staged);
  }
}

// ---- launchers ---------------------------------------------------------------------------------

template <class T, int kSize, int kStride, int kUnit, bool kRotated>
void launch_forward(const ForwardWork<T>& work) {
  const DepthwiseTiling& t = work.tiling;
  const int numbers = t.tile_floats() + (work.store_unit > 0 ? 0 : t.staged_floats());
  launch(depthwise_forward_kernel<T, kSize, kStride, kUnit, kRotated>,
         shape_of(t, work.images, work.channels, static_cast<std::size_t>(numbers) * sizeof(T)),
         work);
}

template <class T, bool kRotated>
void forward_planes(ForwardWork<T> work, const PlaneMap& map) {
  int unit = source_unit(map);
  if (!is_aligned(work.x, unit)) unit = 0;
  work.store_unit = unit_of_rows(map.q);
  if (!is_aligned(work.y, work.store_unit) || !is_aligned(work.residual, work.store_unit)) {
    work.store_unit = 0;
  }
  if (map.stride == 1) unit = work.store_unit = std::min(unit, work.store_unit);
  work.tiling = forward_tiling(map, rows_of(map.stride), unit, /*staged=*/work.store_unit == 0,
                               work.channels, tiles_to_fill_device(work.images));
  for_size_stride_unit<kRotated ? 1 : 2>(
      map.size, map.stride, unit, [&](auto size, auto stride, auto unit_of_rows) {
        launch_forward<T, size(), stride(), unit_of_rows(), kRotated>(work);
      });
}

}  // namespace

DepthwiseTiling tiling_of_forward(const Conv2dProblem& z, Direction direction) {
  const PlaneMap map =
      direction == Direction::backward_data ? rotated(plane_map(z)) : plane_map(z);
  int unit = source_unit(map);
  const int store_unit = unit_of_rows(map.q);
  if (map.stride == 1) unit = std::min(unit, store_unit);
  return forward_tiling(map, rows_of(map.stride), unit, /*staged=*/store_unit == 0, z.c,
                        tiles_to_fill_device(z.n));
}

void forward_by_tiles(const Conv2dForwardArgs& args) {
  const Conv2dProblem& z = args.problem;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward_planes<T, false>({.images = z.n,
                              .channels = static_cast<int>(z.c),
                              .x = static_cast<const T*>(args.x),
                              .w = static_cast<const T*>(args.w),
                              .b = static_cast<const T*>(args.b),
                              .residual = static_cast<const T*>(args.epilogue.residual),
                              .y = static_cast<T*>(args.y),
                              .relu = args.epilogue.relu},
                             plane_map(z));
  });
}

void backward_data_as_forward(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    forward_planes<T, true>({.images = z.n,
                             .channels = static_cast<int>(z.c),
                             .x = static_cast<const T*>(args.dy),
                             .w = static_cast<const T*>(args.w),
                             .y = static_cast<T*>(args.dx)},
                            rotated(plane_map(z)));
  });
}

}  // namespace convscope::depthwise
