// SPDX-License-Identifier: Apache-2.0
// depthwise_weight_cuda.cu: the gradient of the weights of a depthwise convolution on the GPU: x and
// dy are read once, and every thread keeps all R S sums of its channel in registers.
//
// Formula    dw[c,0,r,s] = sum over n, p, q of dy[n,c,p,q] x[n,c,p stride - pad_top + r,
//            q stride - pad_left + s]
// Textbook   for c, r, s:
//              for n, p, q: dw[c,0,r,s] += dy[n,c,p,q] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Plan       two stages. A block owns the channels of a tile and a slice of the batch; it walks over
//            the images (and bands) of its slice. x comes as a tile with a frame of zeros, dy goes
//            straight into registers, 7 rows x 4 columns in a thread. A row of x is read once from
//            the tile and multiplied with all rows of dy that it meets: R S sums for each thread,
//            over all images. At the end the block adds up its threads' sums and writes
//            partial[c,r,s][slice]; the second kernel adds the slices in order
// Shapes     x [N,C,H,W], dy [N,C,P,Q], dw [C,1,R,S], partial [C R S, slices], f32; sums in f32
// Supports   R = S of 3, 5, 7; stride 1 or 2; no dilation, no multiplier; tile fits shared memory
// Cost       FLOPs = 2 N C P Q R S; bytes = x, dy once, and the partial sums; 3x3: memory-bound
// Numerics   sums of 28 products for each image in a thread, then threads, then slices: error about
//            that of a tree; always in the same order, so the same bits on each run. A product is
//            left out, not multiplied by 0, where y has no element: Inf or NaN of x stay where they
//            belong
// Backward   this is backward_weight; dw assigned or added to
// Choices    slices: 8 blocks for each multiprocessor, so that few channels keep all busy.
//            4 blocks wanted, 128 registers: 7x7 has 49 sums + 28 of dy + 10 of x = 87; 3x3: 6, 80
// Source     as depthwise_forward_cuda.cu
// Read next  depthwise_forward_cuda.cu; depthwise_elements_cuda.cu for any shape
#include "layers/conv2d/depthwise_kernels.h"
#include "layers/conv2d/depthwise_launch.cuh"
#include "layers/conv2d/depthwise_tile.cuh"

namespace convscope::depthwise {
namespace {

constexpr int kRows = kForwardRows;  // of dy in a strip

struct WeightWork {
  DepthwiseTiling tiling = {};
  int images = 0, channels = 1;
  int chunks = 1;  // of channels: each the planes of a tile
  int slices = 1;
  const float* x = nullptr;
  const float* dy = nullptr;
  float* partial = nullptr;  // [C, R S, slices]
};

// 4 floats of dy at `row`, those beyond `columns` as 0.
template <bool kExact>
__device__ inline void load_dy(const float* row, int columns, float (&d)[4]) {
  if constexpr (kExact) {
    const float4 all = *reinterpret_cast<const float4*>(row);
    d[0] = all.x, d[1] = all.y, d[2] = all.z, d[3] = all.w;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) d[j] = j < columns ? row[j] : 0.0f;
  }
}

// sums[r,s] += the products of a strip of dy with the tile row `from` and those below it. Rows and
// columns of dy beyond `rows`, `columns` do not exist; with kExact all 7 x 4 do.
template <int kSize, int kStride, bool kExact>
__device__ inline void add_products(const float* from, int pitch, const float (&d)[kRows][4],
                                    int rows, int columns, float (&sums)[kSize * kSize]) {
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
        if (!kExact && j >= columns) continue;
#pragma unroll
        for (int s = 0; s < kSize; ++s) {
          sums[r * kSize + s] = fmaf(v[j * kStride + s], d[o][j], sums[r * kSize + s]);
        }
      }
    }
  }
}

// Adds up the sums of the threads of each channel, in a fixed order.
template <int kTaps>
__device__ inline void write_partial(const WeightWork& work, int first_channel, int channels,
                                     int slice, const float (&sums)[kTaps], float* shared) {
  const DepthwiseTiling& t = work.tiling;
  const int threads = static_cast<int>(blockDim.x);
  const int me = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kTaps; ++i) shared[i * threads + me] = sums[i];
  __syncthreads();
  float* const to =
      work.partial + static_cast<std::int64_t>(first_channel) * kTaps * work.slices + slice;
  if (t.planes == 1) {  // a warp for each tap
    for (int tap = me / 32; tap < kTaps; tap += threads / 32) {
      float sum = 0;
      for (int i = me % 32; i < threads; i += 32) sum += shared[tap * threads + i];
      sum = warp_sum(sum);
      if (me % 32 == 0) to[tap * work.slices] = sum;
    }
    return;
  }
  const int each = t.strips * t.groups;  // threads of a channel
  for (int i = me; i < channels * kTaps; i += threads) {
    const int channel = i / kTaps;
    const float* const from = shared + (i - channel * kTaps) * threads + channel * each;
    float sum = 0;
    for (int j = 0; j < each; ++j) sum += from[j];
    to[i * work.slices] = sum;
  }
}

constexpr int blocks_wanted(int size) { return size == 3 ? 6 : 4; }

template <int kSize, int kStride, bool kExact>
__global__ void __launch_bounds__(DepthwiseTiling::kThreads, blocks_wanted(kSize))
    depthwise_weight_kernel(const __grid_constant__ WeightWork work) {
  const DepthwiseTiling& t = work.tiling;
  float* const tile = dynamic_shared<float>();  // [planes, rows, pitch], then the threads' sums
  const int chunk = static_cast<int>(blockIdx.x) % work.chunks;
  const int slice = static_cast<int>(blockIdx.x) / work.chunks;
  const int first_channel = chunk * t.planes;
  const int channels = min(t.planes, work.channels - first_channel);
  const auto jobs = static_cast<std::int64_t>(work.images) * t.bands;
  const auto begin = static_cast<int>(jobs * slice / work.slices);
  const auto end = static_cast<int>(jobs * (slice + 1) / work.slices);
  float sums[kSize * kSize] = {};
  for (int at = begin; at < end; ++at) {
    const int image = at / t.bands;
    const int band = at - image * t.bands;
    const DepthwiseJob job{
        .plane = static_cast<std::int64_t>(image) * work.channels + first_channel,
        .planes = channels,
        .in_row = t.in_origin + band * t.in_band,
        .out_row = band * t.out_band};
    if (at > begin) __syncthreads();  // all have read the tile before
    if constexpr (kExact) {
      start_aligned_tile(t, job, work.x, tile);
    } else {
      if (at == begin || t.bands > 1) zero_tile(t.tile_floats(), tile);
      __syncthreads();
      scatter_tile(t, job, work.x, tile);
    }
    bool waiting = true;
    for (int index = static_cast<int>(threadIdx.x); waiting || index < t.items();
         index += static_cast<int>(blockDim.x)) {
      const DepthwiseItem item = depthwise_item(t, index);
      const int p0 = job.out_row + item.strip * kRows;
      const bool mine = index < t.items() && item.plane < channels && p0 < t.out_h;
      const int rows = mine ? t.out_h - p0 : 0;
      const int columns = t.out_w - 4 * item.group;
      float d[kRows][4] = {};
      if (mine) {
        const float* const dy =
            work.dy + (job.plane + item.plane) * t.out_h * t.out_w + p0 * t.out_w + 4 * item.group;
#pragma unroll
        for (int o = 0; o < kRows; ++o) {
          if (kExact || o < rows) load_dy<kExact>(dy + o * t.out_w, columns, d[o]);
        }
      }
      if (waiting) wait_for_tile();
      waiting = false;
      if (!mine) continue;
      add_products<kSize, kStride, kExact>(
          tile + (item.plane * t.rows + item.strip * kRows * kStride) * t.pitch +
              4 * kStride * item.group,
          t.pitch, d, rows, columns, sums);
    }
  }
  __syncthreads();
  write_partial(work, first_channel, channels, slice, sums, tile);
}

// ---- launchers ---------------------------------------------------------------------------------

DepthwiseTiling weight_tiling(const PlaneMap& map, bool exact, std::int64_t channels) {
  return forward_tiling(map, exact, channels, /*wanted_tiles=*/1);
}

// The number of slices is decided by the shape alone: workspace_bytes() knows no pointers.
bool is_exact(const PlaneMap& map) {
  return map.w % 4 == 0 && map.q % 4 == 0 && map.pad_left == (map.size - 1) / 2 &&
         map.p % kRows == 0;
}

int slices_of(const DepthwiseTiling& t, const Conv2dProblem& z) {
  const std::int64_t chunks = (z.c + t.planes - 1) / t.planes;
  const std::int64_t wanted = std::int64_t{cuda_device_facts().multiprocessors} * 8;
  return static_cast<int>(std::clamp<std::int64_t>(wanted / chunks, 1, z.n * t.bands));
}

template <int kSize, int kStride, bool kExact>
void launch_weight(const WeightWork& work) {
  const DepthwiseTiling& t = work.tiling;
  const int floats = std::max(t.tile_floats(), kSize * kSize * t.threads());
  launch(depthwise_weight_kernel<kSize, kStride, kExact>,
         {.grid = dim3(static_cast<unsigned>(work.chunks * work.slices)),
          .block = dim3(static_cast<unsigned>(t.threads())),
          .shared_bytes = static_cast<std::size_t>(floats) * sizeof(float)},
         work);
}

}  // namespace

int weight_slices_by_tiles(const Conv2dProblem& problem) {
  const PlaneMap map = plane_map(problem);
  return slices_of(weight_tiling(map, is_exact(map), problem.c), problem);
}

void backward_weight_by_tiles(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  const PlaneMap map = plane_map(z);
  WeightWork work{.images = static_cast<int>(z.n),
                  .channels = static_cast<int>(z.c),
                  .x = static_cast<const float*>(args.x),
                  .dy = static_cast<const float*>(args.dy),
                  .partial = static_cast<float*>(args.workspace)};
  work.slices = weight_slices_by_tiles(z);
  const bool exact = is_exact(map) && is_aligned(work.x) && is_aligned(work.dy);
  work.tiling = weight_tiling(map, exact, z.c);
  work.chunks = static_cast<int>((z.c + work.tiling.planes - 1) / work.tiling.planes);
  for_size_and_stride(map.size, map.stride, exact, [&](auto size, auto stride, auto is_exact) {
    launch_weight<size(), stride(), is_exact()>(work);
  });
  sum_slices(args, work.slices);
}

}  // namespace convscope::depthwise
