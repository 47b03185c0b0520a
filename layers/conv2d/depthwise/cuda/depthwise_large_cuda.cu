// SPDX-License-Identifier: Apache-2.0
// depthwise_large_cuda.cu: y and dx of depthwise convolution with large kernels (9x9 to 63x63) on
// the GPU. Planes are in shared memory, and a thread adds rows of x to 4 x 14 accumulators.
//
// Formula    y[n,c,p,q] = relu(b[c] + sum over r, s of w[c,0,r,s] x[n,c,p stride_h - pad_top + r,
//            q stride_w - pad_left + s] + residual[n,c,p,q]), x = 0 outside
// Textbook   for n, c, p, q:
//              y[n,c,p,q] = b[c]
//              for r, s: y[n,c,p,q] += w[c,0,r,s] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     Each element of x is used R S times, so FMAs limit the speed, and each load from
//            shared memory must serve many FMAs. A block holds some planes (of the same channel, if
//            there are enough images) and their taps. A thread owns 4 rows x 14 columns of y. For
//            each row of x, 17 elements and 4 taps of each row make 224 FMAs for 13 loads. Rows
//            outside x are skipped. With strides, both axes are split into residue classes, each of
//            which is a correlation of stride 1 (depthwise_large_plan.h). Finished rows are
//            gathered in shared memory and stored as one run
// Shapes     x [N,C,H,W], w [C,1,R,S], y [N,C,P,Q], f32, f16 or bf16, row-major, any alignment;
//            in shared memory and in registers f32
// Supports   kernels of up to 63x63 taps, strides of 1 to 3, no dilation, no multiplier; a band of
//            a plane that fits shared memory
// Cost       FLOPs = 2 N C P Q R S, without those of rows outside; bytes = x, w, y once and the
//            rows that bands share; workspace none; compute-bound from about 5x5
// Numerics   one rounding per FMA, in the order class, r, s, b; fp16/bf16 results are rounded once,
//            at the end; same bits on each run; exact on integers
// Backward   dx is computed by this kernel from dy: with stride 1 the taps are rotated, with other
//            strides each residue class of dx takes the taps that reach it
// Choices    14 columns divide 14, 28, 56 and 112. 4 rows x 14 = 56 accumulators, 17 of x, 4 taps:
//            about 100 registers, so 5 blocks of 128 threads fit on an SM. 8 and 7 columns are for
//            other widths, 3 x 9 for gradients of 9x9 and 27x27. make_large_plan() selects tile,
//            planes and bands by the lowest estimated time
// Source     X. Ding et al. 2022: Scaling Up Your Kernels to 31x31, arXiv 2203.06717, who report
//            slow library kernels; register tiles as in V. Volkov 2010: Better Performance at Lower
//            Occupancy
// Read next  depthwise_large.cuh, the loops; depthwise_forward_cuda.cu, for small kernels
#include <memory>
#include <vector>

#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_large.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_large_launch.h"
#include "layers/conv2d/epilogue.cuh"

namespace convscope::depthwise {
namespace {

struct LargeWork {
  LargePlan plan = {};
  DType type = DType::f32;
  int planes = 0, images = 1, channels = 1;
  FastDivisor by_images = {};
  int kernel_h = 0, kernel_w = 0;
  bool sums_entries = true;  // all entries add to the same results
  const void* source = nullptr;
  const void* w = nullptr;
  const void* b = nullptr;
  const void* residual = nullptr;
  void* out = nullptr;
  bool relu = false;
};

// The channel and the plane with number `flat`. These numbers are ordered by channel, then by
// image.
struct PlaneName {
  int channel = 0;
  std::int64_t plane = 0;  // image C + channel
};
__device__ inline PlaneName plane_name(const LargeWork& work, int flat) {
  const int channel = work.by_images.divide(flat);
  return {channel,
          static_cast<std::int64_t>(flat - channel * work.images) * work.channels + channel};
}

// Copies the taps of the channels of a block: taps[set][entry][row][tap_pitch].
template <class T>
__device__ inline void stage_taps(const LargeWork& work, int first_channel, float* taps) {
  const LargePlan& t = work.plan;
  const Axis& rows = t.rows;
  const Axis& columns = t.columns;
  const int entry_rows = t.tap_rows / t.entries;
  const T* const w = static_cast<const T*>(work.w) +
                     static_cast<std::int64_t>(first_channel) * work.kernel_h * work.kernel_w;
  scatter<T>(min(t.tap_sets, work.channels - first_channel), work.kernel_h, work.kernel_w, taps,
             [&](int set, int r, int s, const T*& from) {
               from = w + (set * work.kernel_h + r) * work.kernel_w + s;
               int row = rows.by_tap_step.divide(r);
               int place = columns.by_tap_step.divide(s);
               const int i_row = rows.line_of_tap[r - row * rows.tap_step];
               const int i_column = columns.line_of_tap[s - place * columns.tap_step];
               if (rows.rotated) {
                 row = rows.lines[i_row].taps - 1 - row;
                 place = columns.lines[i_column].taps - 1 - place;
               }
               const int entry = i_row * columns.count + i_column;
               return (set * t.tap_rows + entry * entry_rows + row) * t.tap_pitch + place;
             });
}

// Stores the finished rows of all slots in memory order. Each slot has a channel and a plane, or -1
// for no plane.
template <class T>
__device__ inline void store_slots(const LargeWork& work, const std::int64_t* planes,
                                   const int* channels, int first_row, int rows,
                                   const float* staged) {
  const LargePlan& t = work.plan;
  const auto* const residuals = static_cast<const T*>(work.residual);
  const auto* const biases = static_cast<const T*>(work.b);
  int column = 0;
  const Walk start(t.slots, rows, t.out_w, column);
  for (; column < t.out_w; column += static_cast<int>(blockDim.x)) {
#pragma unroll 4
    for (Walk walk = start; walk.more(); walk.step()) {
      const std::int64_t plane = planes[walk.slot];
      if (plane < 0) continue;
      const std::int64_t at =
          plane * (t.out_h * t.out_w) + (first_row + walk.row) * t.out_w + column;
      float sum = staged[walk.slot * t.staged + walk.row * t.out_w + column];
      if (biases != nullptr) sum += to_float(biases[channels[walk.slot]]);
      // Rounds y to its type before the residual is added. A separate kernel for the addition would
      // also read the rounded y, so both give the same bits.
      if (residuals != nullptr) sum = to_float(from_float<T>(sum));
      static_cast<T*>(work.out)[at] = from_float<T>(finished(sum, residuals, at, work.relu));
    }
  }
}

template <int kRows, int kColumns, int kUnit>
__global__ void __launch_bounds__(LargePlan::kThreads)
    depthwise_large_kernel(const __grid_constant__ LargeWork work) {
  const LargePlan& t = work.plan;
  float* const zeros = dynamic_shared<float>();                         // [pitch]
  float* const tile = zeros + round_up(t.pitch, 4);                     // [slots, sources, ..]
  float* const taps = tile + round_up(t.slots * t.source_floats(), 4);  // [sets, entries, ..]
  float* const staged = taps + t.tap_sets * t.tap_floats();             // [slots, run]
  const int me = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * t.slots;
  const int band_start = static_cast<int>(blockIdx.y) * t.band;
  const int first_channel = work.by_images.divide(first);
  [[maybe_unused]] __shared__ std::int64_t planes[LargePlan::kThreads];   // of each slot, or -1
  [[maybe_unused]] __shared__ std::int64_t offsets[LargePlan::kThreads];  // of the source, or -1
  [[maybe_unused]] __shared__ int channels[LargePlan::kThreads];
  let_next_kernel_start();
  if (me < t.slots) {
    const PlaneName name = plane_name(work, min(first + me, work.planes - 1));
    const bool real = first + me < work.planes;
    planes[me] = real ? name.plane : -1;
    offsets[me] = real ? name.plane * (t.in_h * t.in_w) : -1;
    channels[me] = name.channel;
  }
  zero_floats(static_cast<int>(taps - zeros), zeros);
  __syncthreads();
  wait_for_previous_kernel();
  with_type(work.type, [&](auto zero) {
    using T = decltype(zero);
    stage_sources<T>(t, band_start, static_cast<const T*>(work.source), offsets, tile);
    stage_taps<T>(work, first_channel, taps);
  });
  __syncthreads();

  const int rounds = ceil_div(t.items(), static_cast<int>(blockDim.x));
  for (int round = 0; round < rounds; ++round) {
    const int item = me + round * static_cast<int>(blockDim.x);
    const int above = item / t.groups;
    const int group = item - above * t.groups;
    const int slot = above / t.strips;
    const int strip = above - slot * t.strips;
    const bool mine = slot < t.slots && first + slot < work.planes;
    const int set = mine ? channels[slot] - first_channel : 0;
    float sums[kRows][kColumns] = {};
    for (int entry = 0; entry < t.entries; ++entry) {
      const int i = entry / t.columns.count;
      const Line& rows = t.rows.lines[i];
      const Line& columns = t.columns.lines[entry - i * t.columns.count];
      const int at = first_of(rows, band_start);
      const int source = t.sources == 1 ? 0 : entry;
      correlate<kUnit>(
          {.source = tile + (slot * t.sources + source) * t.tile_rows * t.pitch + columns.left +
                     columns.start + group * kColumns,
           .row = band_start + strip * kRows + rows.start - at,
           .rows = min(t.tile_rows, rows.source_size - at),
           .taps = taps + set * t.tap_floats() + entry * (t.tap_rows / t.entries) * t.tap_pitch,
           .tap_rows = rows.taps,
           .tap_columns = columns.taps,
           .active = mine},
          t.pitch, t.tap_pitch, zeros, sums);
      if (!mine || (work.sums_entries && entry + 1 < t.entries)) continue;
#pragma unroll
      for (int o = 0; o < kRows; ++o) {
        const int row = strip * kRows + o;  // of the band
        if (band_start + row >= rows.outs) break;
        float* const to =
            staged + slot * t.staged + (row * t.rows.out_step + rows.out_first) * t.out_w;
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          const int column = group * kColumns + j;
          if (column < columns.outs)
            to[column * t.columns.out_step + columns.out_first] = sums[o][j];
          sums[o][j] = 0;
        }
      }
    }
  }
  __syncthreads();

  const int row = band_start * t.rows.out_step;
  const int rows = min(t.band * t.rows.out_step, t.out_h - row);
  with_type(work.type, [&](auto zero) {
    store_slots<decltype(zero)>(work, planes, channels, row, rows, staged);
  });
}

// ---- launchers ---------------------------------------------------------------------------------

template <int kTile>
void launch_tile(const LargeWork& work) {
  constexpr ThreadTile kTileOf = kThreadTiles[kTile];
  const LargePlan& t = work.plan;
  LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(ceil_div(work.planes, t.slots)),
                   static_cast<unsigned>(t.bands)),
      .block = dim3(static_cast<unsigned>(t.threads)),
      .shared_bytes =
          static_cast<std::size_t>(shared_floats_of(t, Direction::forward)) * sizeof(float)};
  shape.overlaps_previous = true;
  launch(depthwise_large_kernel<kTileOf.rows, kTileOf.columns, kTileOf.unit>, shape, work);
}

void launch_large(const Conv2dProblem& z, Direction direction, LargeWork work) {
  work.plan = large_plan(z, direction);
  work.type = z.dtype;
  work.planes = static_cast<int>(z.n * z.c);
  work.images = static_cast<int>(z.n);
  work.channels = static_cast<int>(z.c);
  work.by_images = FastDivisor(work.images);
  work.kernel_h = static_cast<int>(z.r);
  work.kernel_w = static_cast<int>(z.s);
  work.sums_entries = direction == Direction::forward;
  work.plan.tile == 0   ? launch_tile<0>(work)
  : work.plan.tile == 1 ? launch_tile<1>(work)
  : work.plan.tile == 2 ? launch_tile<2>(work)
                        : launch_tile<3>(work);
}

}  // namespace

LargeSizes large_sizes(const Conv2dProblem& z, Direction direction) {
  const CudaDeviceFacts& device = cuda_device_facts();
  const auto number = [](std::int64_t value) { return static_cast<int>(value); };
  return {.direction = direction,
          .n = number(z.n),
          .c = number(z.c),
          .h = number(z.h),
          .w = number(z.w),
          .p = number(z.p()),
          .q = number(z.q()),
          .r = number(z.r),
          .s = number(z.s),
          .stride_h = number(z.stride_h),
          .stride_w = number(z.stride_w),
          .pad_top = number(z.pad_top),
          .pad_left = number(z.pad_left),
          .shared_bytes = device.shared_bytes_per_block,
          .multiprocessors = device.multiprocessors,
          .element = number(static_cast<std::int64_t>(size_of(z.dtype)))};
}

const LargePlan& large_plan(const Conv2dProblem& z, Direction direction) {
  const LargeSizes sizes = large_sizes(z, direction);
  // Caches the tilings, because the search takes longer than a launch and a network repeats a few
  // problems.
  struct Remembered {
    LargeSizes sizes;
    LargePlan plan;
  };
  constexpr std::size_t kMax = 64;
  thread_local std::vector<std::unique_ptr<Remembered>> known;
  thread_local std::size_t oldest = 0;
  thread_local std::uint64_t state = 0;
  if (state != cost_state()) {  // other estimates choose other tilings
    known.clear();
    state = cost_state();
  }
  for (const auto& one : known) {
    if (one->sizes == sizes) return one->plan;
  }
  auto one = std::make_unique<Remembered>(Remembered{sizes, make_large_plan(sizes)});
  if (known.size() < kMax) {
    known.push_back(std::move(one));
    return known.back()->plan;
  }
  oldest = (oldest + 1) % kMax;
  known[oldest] = std::move(one);
  return known[oldest]->plan;
}

bool fits_large(const Conv2dProblem& z, Direction direction) {
  // kMax keeps indices in a plane within 32 bits; kMaxPlanes keeps plane numbers and grid
  // dimensions within 32 bits.
  constexpr std::int64_t kMax = 16384, kMaxPlanes = std::int64_t{1} << 30, kMaxTaps = 63;
  if (z.k != z.c || z.dilation_h != 1 || z.dilation_w != 1) return false;
  if (z.stride_h > Axis::kMaxStride || z.stride_w > Axis::kMaxStride) return false;
  if (z.r > kMaxTaps || z.s > kMaxTaps || z.r * z.s < kLeastLargeTaps) return false;
  if (z.h > kMax || z.w > kMax || z.p() > kMax || z.q() > kMax) return false;
  if (z.n * z.c >= kMaxPlanes) return false;
  return large_plan(z, direction).band > 0;
}

Cost large_cost(const Conv2dProblem& z, Direction direction) {
  return counts_of(large_plan(z, direction), large_sizes(z, direction));
}

void forward_of_large_kernels(const Conv2dForwardArgs& args) {
  launch_large(args.problem, Direction::forward,
               {.source = args.x,
                .w = args.w,
                .b = args.b,
                .residual = args.epilogue.residual,
                .out = args.y,
                .relu = args.epilogue.relu});
}

void backward_data_of_large_kernels(const Conv2dBackwardDataArgs& args) {
  launch_large(args.problem, Direction::backward_data,
               {.source = args.dy, .w = args.w, .out = args.dx});
}

}  // namespace convscope::depthwise
