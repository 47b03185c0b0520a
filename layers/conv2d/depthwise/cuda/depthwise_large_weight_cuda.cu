// SPDX-License-Identifier: Apache-2.0
// depthwise_large_weight_cuda.cu: the gradient of large depthwise kernels on the GPU. It is a
// correlation of x with the plane dy: dw stays in registers, and dy has the role of the taps.
//
// Formula    dw[c,0,r,s] = sum over n, p, q of dy[n,c,p,q] x[n,c,p stride_h - pad_top + r,
//            q stride_w - pad_left + s]
// Textbook   for c, r, s:
//              for n, p, q: dw[c,0,r,s] += dy[n,c,p,q] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     Two stages. A block owns a channel and a slice of the batch. It copies some images of
//            x and dy to shared memory at a time (bands of rows, when planes are large). A thread
//            owns 4 x 8 (or 4 x 14, 3 x 9) elements of dw and a run of rows of dy, and keeps its
//            accumulators over all images. Rows of x are added as in the forward pass. At the end
//            the block adds the accumulators that belong to the same elements and writes
//            partial[c,r,s][slice]; a second kernel adds the slices in order
// Shapes     x [N,C,H,W], dy [N,C,P,Q], dw [C,1,R,S], f32, f16 or bf16; partial [C R S, slices] and
//            all sums f32
// Supports   as depthwise_large_cuda.cu
// Cost       FLOPs = 2 N C P Q R S, without those of rows outside; bytes = x, dy once and the
//            partial sums; compute-bound
// Numerics   one chain of all products of a run of dy's rows over the images of a slice, then runs,
//            then slices, always in the same order: same bits on each run
// Backward   this file is backward_weight; dw assigned or added to
// Choices    Runs have an odd number of rows, so that the taps of neighbouring runs are in
//            different banks. Slices: 4 blocks for each SM, because all blocks of a channel take
//            equally long
// Source     as depthwise_large_cuda.cu
// Read next  depthwise_large_cuda.cu; depthwise_weight_cuda.cu, for small kernels
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_large.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_large_launch.h"

namespace convscope::depthwise {
namespace {

struct LargeWeightWork {
  LargePlan plan = {};
  DType type = DType::f32;
  int images = 1;
  int channels = 1;
  int slices = 1;
  const void* x = nullptr;
  const void* dy = nullptr;
  float* partial = nullptr;  // [C, R S, slices]
};

// Copies dy of the images of a block: taps[slot][row][tap_pitch].
template <class T>
__device__ inline void stage_gradients(const LargeWeightWork& work, int band_start,
                                       const std::int64_t* planes, float* taps) {
  const LargePlan& t = work.plan;
  const int height = t.rows.lines[0].taps;
  const int width = t.columns.lines[0].taps;
  const auto* const dy = static_cast<const T*>(work.dy);
  scatter<T>(t.slots, min(t.band, height - band_start), width, taps,
             [&](int slot, int row, int column, const T*& from) {
               const std::int64_t plane = planes[slot];
               from = dy + plane * (height * width) + (band_start + row) * width + column;
               return plane < 0 ? -1 : (slot * t.tap_rows + row) * t.tap_pitch + column;
             });
}

template <int kRows, int kColumns, int kUnit>
__global__ void __launch_bounds__(LargePlan::kMaxThreads)
    depthwise_large_weight_kernel(const __grid_constant__ LargeWeightWork work) {
  const LargePlan& t = work.plan;
  float* const zeros = dynamic_shared<float>();                         // [pitch]
  float* const tile = zeros + round_up(t.pitch, 4);                     // [slots, sources, ...]
  float* const taps = tile + round_up(t.slots * t.source_floats(), 4);  // [slots, band, tap_pitch]
  const int me = static_cast<int>(threadIdx.x);
  const auto slice = static_cast<int>(blockIdx.y);
  const std::int64_t jobs = std::int64_t{ceil_div(work.images, t.slots)} * t.bands;
  const auto begin = static_cast<int>(jobs * slice / work.slices);
  const auto end = static_cast<int>(jobs * (slice + 1) / work.slices);
  let_next_kernel_start();
  zero_floats(static_cast<int>(taps - zeros), zeros);  // the borders stay zero for all images
  __syncthreads();
  wait_for_previous_kernel();

  // Computes slot, segment, entry, strip and group from the thread index, which is (((slot *
  // segments + segment) * entries + entry) * strips + strip) * groups + group.
  const int each = t.strips * t.groups;
  const int all = t.entries * each;
  const int run = me / all;
  const int slot = run / t.segments;
  const int segment = run - slot * t.segments;
  const int entry = (me - run * all) / each;
  const int strip = (me - run * all - entry * each) / t.groups;
  const int group = (me - run * all - entry * each) - strip * t.groups;
  const int i = entry / t.columns.count;
  const Line& rows = t.rows.lines[i];
  const Line& columns = t.columns.lines[entry - i * t.columns.count];
  const int source = t.sources == 1 ? 0 : entry;

  [[maybe_unused]] __shared__ std::int64_t planes[LargePlan::kMaxThreads];   // of each slot, or -1
  [[maybe_unused]] __shared__ std::int64_t offsets[LargePlan::kMaxThreads];  // of x, or -1
  float sums[kRows][kColumns] = {};
  for (int at = begin; at < end; ++at) {
    const int part = at / t.bands;
    const int first_image = part * t.slots;
    const int band_start = (at - part * t.bands) * t.band;
    if (at > begin) __syncthreads();  // all threads have read the previous tiles
    if (me < t.slots) {
      const int image = first_image + me;
      const std::int64_t plane =
          static_cast<std::int64_t>(image) * work.channels + static_cast<int>(blockIdx.x);
      planes[me] = image < work.images ? plane : -1;
      offsets[me] = image < work.images ? plane * (t.in_h * t.in_w) : -1;
    }
    __syncthreads();
    with_type(work.type, [&](auto zero) {
      using T = decltype(zero);
      stage_sources<T>(t, band_start, static_cast<const T*>(work.x), offsets, tile);
      stage_gradients<T>(work, band_start, planes, taps);
    });
    __syncthreads();
    const int tap = segment * t.segment;  // row of the band
    const int left = min(t.band, rows.taps - band_start) - tap;
    const int held = first_of(rows, band_start);
    correlate<kUnit>({.source = tile + (slot * t.sources + source) * t.tile_rows * t.pitch +
                                columns.left + columns.start + group * kColumns,
                      .row = band_start + tap + strip * kRows + rows.start - held,
                      .rows = min(t.tile_rows, rows.source_size - held),
                      .taps = taps + slot * t.tap_floats() + tap * t.tap_pitch,
                      .tap_rows = min(t.segment, left),
                      .tap_columns = columns.taps,
                      .active = slot < t.slots && first_image + slot < work.images && left > 0},
                     t.pitch, t.tap_pitch, zeros, sums);
  }

  // Several threads hold partial sums of the same elements of dw. Adds them in a fixed order.
  constexpr int kPitch = kRows * kColumns | 1;
  __syncthreads();
  float* const shared = zeros;  // [threads, kPitch]
#pragma unroll
  for (int o = 0; o < kRows; ++o) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) shared[me * kPitch + o * kColumns + j] = sums[o][j];
  }
  __syncthreads();
  const int runs = t.slots * t.segments;
  float* const to = work.partial +
                    static_cast<std::int64_t>(blockIdx.x) * t.out_h * t.out_w * work.slices + slice;
  for (int at = me; at < t.out_h * t.out_w; at += static_cast<int>(blockDim.x)) {
    const int r = at / t.out_w;
    const int s = at - r * t.out_w;
    const int own_row = r / t.rows.out_step, row_line = r - own_row * t.rows.out_step;
    const int own_column = s / t.columns.out_step, line = s - own_column * t.columns.out_step;
    const int item = (row_line * t.columns.count + line) * each + own_row / kRows * t.groups +
                     own_column / kColumns;
    const float* const from =
        shared + item * kPitch + own_row % kRows * kColumns + own_column % kColumns;
    float sum = 0;
    for (int n = 0; n < runs; ++n) sum += from[n * all * kPitch];
    to[static_cast<std::int64_t>(at) * work.slices] = sum;
  }
}

// ---- launchers ---------------------------------------------------------------------------------

template <int kTile>
void launch_tile(const LargeWeightWork& work) {
  constexpr ThreadTile kTileOf = kThreadTiles[kTile];
  const LargePlan& t = work.plan;
  LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(work.channels), static_cast<unsigned>(work.slices)),
      .block = dim3(static_cast<unsigned>(t.threads)),
      .shared_bytes = static_cast<std::size_t>(shared_floats_of(t, Direction::backward_weight)) *
                      sizeof(float)};
  shape.overlaps_previous = true;
  launch(depthwise_large_weight_kernel<kTileOf.rows, kTileOf.columns, kTileOf.unit>, shape, work);
}

}  // namespace

int weight_slices_of_large_kernels(const Conv2dProblem& z) {
  return weight_slices(large_plan(z, Direction::backward_weight),
                       large_sizes(z, Direction::backward_weight));
}

void backward_weight_of_large_kernels(const Conv2dBackwardWeightArgs& args) {
  const Conv2dProblem& z = args.problem;
  LargeWeightWork work{.plan = large_plan(z, Direction::backward_weight),
                       .type = z.dtype,
                       .images = static_cast<int>(z.n),
                       .channels = static_cast<int>(z.c),
                       .x = args.x,
                       .dy = args.dy,
                       .partial = static_cast<float*>(args.workspace)};
  work.slices = weight_slices_of_large_kernels(z);
  work.plan.tile == 0   ? launch_tile<0>(work)
  : work.plan.tile == 1 ? launch_tile<1>(work)
  : work.plan.tile == 2 ? launch_tile<2>(work)
                        : launch_tile<3>(work);
  sum_slices(args, work.slices);
}

}  // namespace convscope::depthwise
