// SPDX-License-Identifier: Apache-2.0
// depthwise_parities_cuda.cu: the gradient of x of a depthwise convolution with stride 2 on the
// GPU. dx is split into four parities of (row, column), and each tap adds to one of them.
//
// Formula    dx[n,c,h,w] = sum over r, s with h + pad_top - r = 2 p and w + pad_left - s = 2 q of
//            w[c,0,r,s] dy[n,c,p,q], 0 <= p < P, 0 <= q < Q
// Textbook   for n, c, p, q, r, s:
//              dx[n,c,2p+r-pad,2q+s-pad] += w[c,0,r,s] * dy[n,c,p,q]
// Method     Each pixel of dx gathers its products. A thread owns 8 rows x 4 columns of dx, from an
//            even h + pad_top on. Row p of dy reaches the rows 2 p - pad_top + r. Within the strip,
//            the table (row of dy, r) -> row of dx is known at compile time. Column 4 g + j takes
//            the taps s with the parity of j + pad_left. The parity of pad_left is a template
//            parameter, so the kernel computes no remainders. depthwise_tiling.h describes the
//            tiles of dy
// Shapes     dy [N,C,P,Q], w [C,1,R,S], dx [N,C,H,W], f32, f16 or bf16, row-major, any alignment;
//            sums in f32
// Supports   R = S of 3, 5, 7; stride 2; no dilation, no multiplier; tile fits shared memory
// Cost       FLOPs = 2 N C P Q R S; bytes = dy, w, dx once. 3x3: 4.5 FLOPs for each 4 bytes of dx
//            and 1 byte of dy, so it is memory-bound, and the store of dx is four fifths of the
//            traffic
// Numerics   at most ceil(R/2) ceil(S/2) terms, one rounding per FMA; same bits on each run
// Backward   dx assigned; pixels that no output reads become 0
// Choices    8 rows of dx need 4 rows of dy and (R - 1) / 2 rows above, which the previous strip
//            reads too
// Source     as depthwise_forward_cuda.cu; the parities: V. Dumoulin, F. Visin 2016: A guide to
//            convolution arithmetic for deep learning, arXiv 1603.07285
// Read next  depthwise_forward_cuda.cu
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kRows = 8;  // of dx in a strip

template <class T>
struct ParityWork {
  DepthwiseTiling tiling = {};
  std::int64_t images = 0;
  int channels = 1;
  const T* dy = nullptr;
  const T* w = nullptr;
  T* dx = nullptr;
  bool direct = false;  // rows of dx are whole units of 4
};

// The first column of dy that 4 columns of dx read, and the number of these columns. Columns of dy
// are relative to 2 g + floor(pad_left / 2) for group g. Tap s and column 4 g + j of dx use the
// column (j + odd - s) / 2 of dy, if this is a whole number.
constexpr int first_column(int size, int odd) { return -((size - 1 - odd) / 2); }
constexpr int column_count(int size, int odd) {
  return (3 + odd) / 2 - first_column(size, odd) + 1;
}

template <class T, int kSize, int kOdd>
__global__ void __launch_bounds__(DepthwiseTiling::kThreads, kSize == 7 ? 4 : 6)
    depthwise_parities_kernel(const __grid_constant__ ParityWork<T> work) {
  constexpr int kAbove = (kSize - 1) / 2;  // rows of dy above the strip's first
  constexpr int kFirst = first_column(kSize, kOdd);
  constexpr int kCount = column_count(kSize, kOdd);
  const DepthwiseTiling& t = work.tiling;
  T* const tile = dynamic_shared<T>();       // [planes, rows, pitch]
  T* const staged = tile + t.tile_floats();  // the run of dx
  let_next_kernel_start();
  wait_for_previous_kernel();
  const DepthwiseJob job =
      depthwise_job(t, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y),
                    static_cast<int>(blockIdx.x), work.channels);
  const TargetRun<T> run = target_run(t, job, work.dx);

  // A thread has several items only if the tile is one plane, so all items of a thread have the
  // same channel.
  int index = static_cast<int>(threadIdx.x);
  DepthwiseItem item = depthwise_item(t, index);
  float taps[kSize * kSize] = {};
  if (item.plane < job.planes) {
    const T* const w = work.w + (job.channel + item.plane) * (kSize * kSize);
#pragma unroll
    for (int i = 0; i < kSize * kSize; ++i) taps[i] = to_float(w[i]);
  }
  scatter_whole_tile(t, job, work.dy, tile);

  for (; index < t.items(); index += static_cast<int>(blockDim.x)) {
    item = depthwise_item(t, index);
    if (item.plane >= job.planes) break;
    const T* const from =
        tile + (item.plane * t.rows + item.strip * (kRows / 2)) * t.pitch + 2 * item.group;
    const int h0 = job.out_row + item.strip * kRows;  // may be -1
    const int at = (item.plane * t.out_h + h0 - run.first_row) * t.out_w + 4 * item.group;
    T* const dx = run.to + at;
    T* const stage = staged + phase_of(run.to) + at;
    float sums[kRows][4];
#pragma unroll
    for (int o = 0; o < kRows; ++o) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[o][j] = 0;
    }
#pragma unroll
    for (int i = 0; i < kRows / 2 + kAbove; ++i) {
      float v[kCount];
      load_window<0, 2>(from + i * t.pitch, v);
#pragma unroll
      for (int r = 0; r < kSize; ++r) {
        const int o = 2 * (i - kAbove) + r;  // row of dx in the strip
        if (o < 0 || o >= kRows) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
#pragma unroll
          for (int s = (j + kOdd) % 2; s < kSize; s += 2) {
            sums[o][j] = fmaf(v[(j + kOdd - s) / 2 - kFirst], taps[r * kSize + s], sums[o][j]);
          }
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int done = 2 * (i - kAbove) + half;  // complete: no later row of dy reaches this row
        if (done < 0 || h0 + done < 0 || h0 + done >= t.out_h) continue;
        if (work.direct) {
          store_unit<4>(dx + done * t.out_w, sums[done]);
          continue;
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (4 * item.group + j < t.out_w)
            stage[done * t.out_w + j] = from_float<T>(sums[done][j]);
        }
      }
    }
  }
  if (work.direct) return;
  __syncthreads();
  store_run(run, staged);
}

// ---- launcher ----------------------------------------------------------------------------------

template <class T>
DepthwiseTiling parity_tiling(const PlaneMap& map, bool direct, const ParityWork<T>& work) {
  const int odd = map.pad_left % 2;
  const int even_start = map.pad_top / 2 * 2;  // of h + pad_top
  return make_depthwise_tiling({.in_h = map.p,
                                .in_w = map.q,
                                .out_h = map.h,
                                .out_w = map.w,
                                .shift = -(map.pad_left / 2) - first_column(map.size, odd),
                                .in_origin = even_start / 2 - (map.size - 1) / 2,
                                .out_origin = even_start - map.pad_top,
                                .in_strip = kRows / 2,
                                .out_strip = kRows,
                                .in_extra = (map.size - 1) / 2,
                                .group_step = 2,
                                .window = (column_count(map.size, odd) + 1) / 2 * 2,
                                .channels = work.channels,
                                .wanted_tiles = tiles_to_fill_device(work.images),
                                .staged = !direct,
                                .shared_bytes = cuda_device_facts().shared_bytes_per_block});
}

template <class T, int kSize, int kOdd>
void launch_parities(const ParityWork<T>& work) {
  const DepthwiseTiling& t = work.tiling;
  const int numbers = t.tile_floats() + (work.direct ? 0 : t.staged_floats());
  launch(depthwise_parities_kernel<T, kSize, kOdd>,
         shape_of(t, work.images, work.channels, static_cast<std::size_t>(numbers) * sizeof(T)),
         work);
}

}  // namespace

DepthwiseTiling tiling_of_parities(const Conv2dProblem& z) {
  const ParityWork<float> work{.images = z.n, .channels = static_cast<int>(z.c)};
  return parity_tiling(plane_map(z), z.w % 4 == 0, work);
}

void backward_data_by_parities(const Conv2dBackwardDataArgs& args) {
  const Conv2dProblem& z = args.problem;
  const PlaneMap map = plane_map(z);
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    ParityWork<T> work{.images = z.n,
                       .channels = static_cast<int>(z.c),
                       .dy = static_cast<const T*>(args.dy),
                       .w = static_cast<const T*>(args.w),
                       .dx = static_cast<T*>(args.dx)};
    work.direct = map.w % 4 == 0 && is_aligned(work.dx, 4);
    work.tiling = parity_tiling(map, work.direct, work);
    const auto launch_size = [&](auto size) {
      map.pad_left % 2 != 0 ? launch_parities<T, size(), 1>(work)
                            : launch_parities<T, size(), 0>(work);
    };
    map.size == 3   ? launch_size(std::integral_constant<int, 3>())
    : map.size == 5 ? launch_size(std::integral_constant<int, 5>())
                    : launch_size(std::integral_constant<int, 7>());
  });
}

}  // namespace convscope::depthwise
