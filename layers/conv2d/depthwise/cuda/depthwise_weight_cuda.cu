// SPDX-License-Identifier: Apache-2.0
// depthwise_weight_cuda.cu: the weight gradient of a depthwise convolution on the GPU. x and dy are
// read once, and every thread keeps all R S accumulators of its channel.
//
// Formula    dw[c,0,r,s] = sum over n, p, q of dy[n,c,p,q] x[n,c,p stride - pad_top + r,
//            q stride - pad_left + s]
// Textbook   for c, r, s:
//              for n, p, q: dw[c,0,r,s] += dy[n,c,p,q] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     Two stages. A block owns the channels of a tile and a slice of the batch; it loops
//            over the images (and bands) of its slice. x is a tile with a border of zeros; dy is
//            loaded to registers, 7 rows x 4 columns in a thread. A thread reads a row of x from
//            the tile once and multiplies it by all rows of dy that use it. Its R S accumulators
//            are kept over all images. At the end the block adds its threads' accumulators and
//            writes partial[c,r,s][slice]; a second kernel adds the slices in order
// Shapes     x [N,C,H,W], dy [N,C,P,Q], dw [C,1,R,S], f32, f16 or bf16; partial [C R S, slices] and
//            sums in f32
// Supports   R = S of 3, 5, 7; stride 1 or 2; no dilation, no multiplier; tile fits shared memory
// Cost       FLOPs = 2 N C P Q R S; bytes = x, dy once, and the partial sums; 3x3: memory-bound
// Numerics   each thread sums 28 products for each image, then threads are added, then slices, with
//            an error about that of a tree. The order is always the same: same bits on each run.
//            Where y has no element the product is left out (not multiplied by 0), so Inf or NaN in
//            x affects only the results that use it
// Backward   this file is backward_weight; dw assigned or added to
// Choices    7x7: 4 blocks on an SM, 128 registers for 49 accumulators + 28 of dy + 10 of x = 87.
//            3x3: 6 blocks, 80 registers
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_forward_cuda.cu; depthwise_elements_cuda.cu for any shape
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_slices.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kRows = 7;  // of dy in a strip

template <class T>
struct WeightWork {
  DepthwiseTiling tiling = {};
  Slices slices = {};
  const T* x = nullptr;
  const T* dy = nullptr;
};

// Adds the products of a strip of dy and the tile rows that begin at `from` to sums[r,s]. Only the
// first `rows` rows and `columns` columns of the strip are inside dy. If kUnit is not 0, all 7 rows
// are inside, and so are the first kUnit columns.
template <class T, int kSize, int kStride, int kUnit>
__device__ inline void add_products(const T* from, int pitch, const float (&d)[kRows][4], int rows,
                                    int columns, float (&sums)[kSize * kSize]) {
  constexpr bool kExact = kUnit > 0;
  constexpr int kOffset = kExact ? DepthwiseTiling::kLeftMargin - (kSize - 1) / 2 : 0;
  constexpr int kWindow = 3 * kStride + kSize;
#pragma unroll
  for (int i = 0; i < (kRows - 1) * kStride + kSize; ++i) {
    float v[kWindow];
    load_window<kOffset, 4>(from + i * pitch, v);
#pragma unroll
    for (int r = 0; r < kSize; ++r) {
      const int o = (i - r) / kStride;
      if (i < r || (i - r) % kStride != 0 || o >= kRows) continue;
      if (!kExact && o >= rows) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (kUnit < 4 && j >= kUnit && j >= columns) continue;
#pragma unroll
        for (int s = 0; s < kSize; ++s) {
          sums[r * kSize + s] = fmaf(v[j * kStride + s], d[o][j], sums[r * kSize + s]);
        }
      }
    }
  }
}

constexpr int blocks_wanted(int size) { return size == 3 ? 6 : 4; }

template <class T, int kSize, int kStride, int kUnit>
__global__ void __launch_bounds__(DepthwiseTiling::kThreads, blocks_wanted(kSize))
    depthwise_weight_kernel(const __grid_constant__ WeightWork<T> work) {
  const DepthwiseTiling& t = work.tiling;
  T* const tile = dynamic_shared<T>();  // [planes, rows, pitch], then the threads' sums
  let_next_kernel_start();
  wait_for_previous_kernel();
  const SlicePart part = slice_part(t, work.slices);
  float sums[kSize * kSize] = {};
  for (int at = part.begin; at < part.end; ++at) {
    const DepthwiseJob job = slice_job(t, work.slices, at);
    if (at > part.begin) __syncthreads();  // all threads have read the previous tile
    if constexpr (kUnit > 0) {
      start_aligned_tile<kUnit>(t, job, work.x, tile);
    } else {
      if (at == part.begin || t.bands > 1) zero_tile(t.tile_floats(), tile);
      __syncthreads();
      scatter_tile(t, job, work.x, tile);
    }
    bool waiting = true;
    for (int index = static_cast<int>(threadIdx.x); waiting || index < t.items();
         index += static_cast<int>(blockDim.x)) {
      const DepthwiseItem item = depthwise_item(t, index);
      const int p0 = job.out_row + item.strip * kRows;
      const bool mine = index < t.items() && item.plane < job.planes && p0 < t.out_h;
      const int rows = mine ? t.out_h - p0 : 0;
      const int columns = t.out_w - 4 * item.group;
      float d[kRows][4] = {};
      if (mine) {
        const T* const dy = plane_at(work.dy, job.plane + item.plane, t.out_h, t.out_w) +
                            p0 * t.out_w + 4 * item.group;
#pragma unroll
        for (int o = 0; o < kRows; ++o) {
          if (kUnit > 0 || o < rows) load_group<kUnit>(dy + o * t.out_w, columns, d[o]);
        }
      }
      if (waiting) wait_for_tile();
      waiting = false;
      if (!mine) continue;
      add_products<T, kSize, kStride, kUnit>(
          tile + (item.plane * t.rows + item.strip * kRows * kStride) * t.pitch +
              4 * kStride * item.group,
          t.pitch, d, rows, columns, sums);
    }
  }
  __syncthreads();
  write_partial(t, work.slices, part.slice, sums, dynamic_shared<float>());
}

// ---- launchers ---------------------------------------------------------------------------------

DepthwiseTiling weight_tiling(const PlaneMap& map, int unit, std::int64_t channels) {
  return forward_tiling(map, kRows, unit, /*staged=*/unit == 0, channels, /*wanted_tiles=*/1);
}

// The unit depends only on sizes, not on the alignment of pointers. workspace_bytes() has no
// pointers, but needs the number of slices, which depends on the unit.
int weight_unit(const PlaneMap& map) { return map.p % kRows == 0 ? unit_of(map) : 0; }

template <class T, int kSize, int kStride, int kUnit>
void launch_weight(const WeightWork<T>& work) {
  const DepthwiseTiling& t = work.tiling;
  const auto numbers = static_cast<std::size_t>(t.tile_floats());
  const auto sums = static_cast<std::size_t>(kSize * kSize * t.threads());
  launch(depthwise_weight_kernel<T, kSize, kStride, kUnit>,
         shape_of(t, work.slices, std::max(numbers * sizeof(T), sums * sizeof(float))), work);
}

}  // namespace

DepthwiseTiling tiling_of_weight(const Conv2dProblem& problem) {
  const PlaneMap map = plane_map(problem);
  return weight_tiling(map, weight_unit(map), problem.c);
}

int weight_slices_by_tiles(const Conv2dProblem& problem) {
  return slice_count(tiling_of_weight(problem), problem);
}

void backward_weight_by_tiles(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const PlaneMap map = plane_map(z);
  const int slices = weight_slices_by_tiles(z);
  with_float_type(z.dtype, [&](auto zero) {
    using T = decltype(zero);
    WeightWork<T> work{.x = static_cast<const T*>(args.x), .dy = static_cast<const T*>(args.dy)};
    int unit = weight_unit(map);
    if (!is_aligned(work.x, unit) || !is_aligned(work.dy, unit)) unit = 0;
    work.tiling = weight_tiling(map, unit, z.c);
    work.slices = slices_of(work.tiling, z, slices, args.workspace);
    for_size_stride_unit(map.size, map.stride, unit,
                         [&](auto size, auto stride, auto unit_of_rows) {
                           launch_weight<T, size(), stride(), unit_of_rows()>(work);
                         });
  });
  sum_slices(args, slices);
}

}  // namespace convscope::depthwise
