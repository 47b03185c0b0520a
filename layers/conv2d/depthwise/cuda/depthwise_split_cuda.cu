// SPDX-License-Identifier: Apache-2.0
// depthwise_split_cuda.cu: y and dx of depthwise convolution with large kernels on the GPU, for few
// planes and strides of 2, where a tile of 4 x 14 accumulators per thread would leave most of the
// device idle.
//
// Formula    y[n,c,p,q] = relu(b[c] + sum over r, s of w[c,0,r,s] x[n,c,p stride_h - pad_top + r,
//            q stride_w - pad_left + s] + residual[n,c,p,q]), x = 0 outside
// Textbook   for n, c, p, q:
//              y[n,c,p,q] = b[c]
//              for r, s: y[n,c,p,q] += w[c,0,r,s] * x[n,c,p*stride+r-pad,q*stride+s-pad]
// Method     A block holds a band of a plane and the taps in shared memory. A thread owns 4
//            neighbouring columns of a row. With few planes the rows of the kernel are split over
//            up to 4 threads, whose results are added in order at the end. Each thread then has
//            fewer consecutive steps, and the device has more threads. With strides, columns are
//            split into classes of stride 1 (depthwise_large_plan.h), which are consecutive in a
//            tile row. Rows of x are not split; a thread steps over them. For dx of stride 2 a
//            thread has both column classes, so that it stores 8 neighbours. The loop is small and
//            has the same code for every size, because code must be loaded from memory before it
//            runs
// Shapes     x [N,C,H,W], w [C,1,R,S], y [N,C,P,Q], f32, f16 or bf16, row-major, any alignment;
//            in shared memory and in registers f32
// Supports   kernels of up to 63x63 taps, strides of 1 and 2, no dilation, no multiplier; a band of
//            a plane that fits shared memory
// Cost       FLOPs = 2 N C P Q R S, without those of rows outside; bytes = x, w, y once and the
//            rows that bands share; workspace none
// Numerics   one rounding per FMA, in the order r, class, s; then the parts in order, then b;
//            fp16/bf16 results are rounded once, at the end; same bits on each run; exact on
//            integers
// Backward   dx is computed by this kernel from dy: with stride 1 the taps are rotated, with stride
//            2 each class of dx takes the taps that reach it
// Choices    4 columns: one store of 16 bytes, and 3 loads of 16 bytes (4 taps, 8 numbers of x) for
//            16 FMAs. Each part has at least 3 rows of the kernel, because adding the parts takes
//            time, too
// Source     as depthwise_large_cuda.cu
// Read next  depthwise_large_cuda.cu, for many planes of stride 1
#include "layers/conv2d/depthwise/cuda/depthwise_kernels.h"
#include "layers/conv2d/depthwise/cuda/depthwise_large_launch.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_split_plan.h"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"
#include "layers/conv2d/epilogue.cuh"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope::depthwise {
namespace {

template <class T>
struct SplitWork {
  SplitPlan plan = {};
  int channels = 1;
  int kernel_h = 0, kernel_w = 0;
  FastDivisor by_channels = {}, by_kernel_w = {};
  const T* source = nullptr;
  const T* w = nullptr;
  const T* b = nullptr;
  const T* residual = nullptr;
  T* out = nullptr;
  bool whole_units = false;  // rows of the target are whole units of 4, aligned
  bool relu = false;
};

// Copies rows [first_row, end_row) of a plane into tile[row][entry][pitch], with zeros around the
// rows. While the first loads are in flight, the function zeroes the tile and calls meanwhile().
// The function ends with a barrier.
template <class T, class Meanwhile>
__device__ inline void stage_rows(const SplitPlan& t, const T* plane, int first_row, int end_row,
                                  float* tile, Meanwhile meanwhile) {
  constexpr int kAhead = 4;
  const int threads = static_cast<int>(blockDim.x);
  const T* const run = plane + static_cast<std::int64_t>(first_row) * t.in_w;
  const int count = max(0, end_row - first_row) * t.in_w;
  const int phase = phase_of(run);
  bool zeroed = false;
  for (int i = static_cast<int>(threadIdx.x); !zeroed || 4 * i - phase < count;
       i += kAhead * threads) {
    Four<T> ahead[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      ahead[a] = load_piece(run, 4 * (i + a * threads) - phase, count);
    }
    if (!zeroed) {
      for (int j = 4 * static_cast<int>(threadIdx.x); j < t.tile_floats(); j += 4 * threads) {
        *reinterpret_cast<float4*>(tile + j) = make_float4(0, 0, 0, 0);
      }
      meanwhile();
      __syncthreads();
      zeroed = true;
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int first = 4 * (i + a * threads) - phase;
      if (first >= count) break;
      const int start = max(first, 0);
      int row = t.by_in_w.divide(start);
      int column = start - row * t.in_w;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (first + j < 0 || first + j >= count) continue;
        const float value = to_float(ahead[a].v[j]);
        float* const to = tile + row * t.entries * t.pitch;
        if (t.separate) {  // one copy for each class of dx, shifted for its taps
          for (int e = 0; e < t.entries; ++e) {
            const int place = column - t.columns.lines[e].start;
            if (place >= 0 && place < t.pitch) to[e * t.pitch + place] = value;
          }
        } else {
          const int class_column = t.columns.by_source_step.divide(column);
          const int e = t.columns.line_of_source[column - class_column * t.columns.source_step];
          const int place = class_column - t.columns.lines[e].start;
          if (place >= 0 && place < t.pitch) to[e * t.pitch + place] = value;
        }
        if (++column < t.in_w) continue;
        column = 0;
        ++row;
      }
    }
  }
}

// Copies taps[class][row][entry][tap_pitch].
template <class T>
__device__ inline void stage_taps(const SplitWork<T>& work, const T* w, float* taps) {
  const SplitPlan& t = work.plan;
  for (int i = static_cast<int>(threadIdx.x); i < work.kernel_h * work.kernel_w;
       i += static_cast<int>(blockDim.x)) {
    const int r = work.by_kernel_w.divide(i);
    const int s = i - r * work.kernel_w;
    int row = t.rows.by_tap_step.divide(r);
    int place = t.columns.by_tap_step.divide(s);
    const int row_line = t.rows.line_of_tap[r - row * t.rows.tap_step];
    const int column_line = t.columns.line_of_tap[s - place * t.columns.tap_step];
    if (t.rows.rotated) {
      row = t.rows.lines[row_line].taps - 1 - row;
      place = t.columns.lines[column_line].taps - 1 - place;
    }
    taps[((row_line * t.tap_rows + row) * t.entries + column_line) * t.tap_pitch + place] =
        to_float(w[i]);
  }
}

// Adds the sum of source[j + s] * taps[s] over s < kTaps to sums[j].
template <int kTaps>
__device__ inline void add_taps(const float* source, const float* taps, float (&sums)[4]) {
  float v[8], t[4];
  load_unit<4>(source, v);
  load_unit<4>(source + 4, v + 4);
  load_unit<4>(taps, t);
#pragma unroll
  for (int s = 0; s < kTaps; ++s) {
#pragma unroll
    for (int j = 0; j < 4; ++j) sums[j] = fmaf(v[j + s], t[s], sums[j]);
  }
}

template <class T, int kEntries, bool kSeparate>
__global__ void __launch_bounds__(SplitPlan::kMaxThreads)
    depthwise_split_kernel(const __grid_constant__ SplitWork<T> work) {
  constexpr int kSets = kSeparate ? kEntries : 1;  // of sums
  const SplitPlan& t = work.plan;
  float* const tile = dynamic_shared<float>();  // [tile_rows, entries, pitch]
  float* const taps = tile + t.tile_floats();   // [classes, tap_rows, entries, tap_pitch]
  const auto band = static_cast<int>(blockIdx.y);
  const auto plane = static_cast<int>(blockIdx.x);
  const int channel = work.by_channels.remainder(plane);
  const int first_row = t.first_row(band);
  const int end_row = min(first_row + t.tile_rows, t.in_h);
  const T* const w = plane_at(work.w, channel, work.kernel_h, work.kernel_w);
  let_next_kernel_start();
  wait_for_previous_kernel();
  stage_rows(t, plane_at(work.source, plane, t.in_h, t.in_w), first_row, end_row, tile,
             [&] { stage_taps(work, w, taps); });
  __syncthreads();

  // Computes part, class, row of the band and group from the thread index, which is ((part *
  // classes + class) * band + row) * groups + group.
  const int me = static_cast<int>(threadIdx.x);
  const int above = t.by_groups.divide(me);
  const int group = me - above * t.groups;
  const int line = t.by_band.divide(above);
  const int part = t.by_classes.divide(line);
  const int class_index = line - part * t.classes;
  const Line& rows = t.rows.lines[class_index];
  const int p = band * t.band + above - line * t.band;  // row of the class
  const bool mine = part < t.parts && p < rows.outs;

  float sums[kSets][4] = {};
  if (mine) {
    const int base = p * t.row_step + rows.start;  // source row for row 0 of the kernel
    const int begin = max(rows.taps * part / t.parts, -base);
    const int end = min(rows.taps * (part + 1) / t.parts, t.in_h - base);
    const float* source = tile + (base + begin - first_row) * kEntries * t.pitch + 4 * group;
    const float* met = taps + (class_index * t.tap_rows + begin) * kEntries * t.tap_pitch;
#pragma unroll 1
    for (int k = begin; k < end; ++k) {
#pragma unroll
      for (int e = 0; e < kEntries; ++e) {
        float(&to)[4] = sums[kSeparate ? e : 0];
        const int columns = t.columns.lines[e].taps;
        int q = 0;
#pragma unroll 1
        for (; q + 4 <= columns; q += 4) add_taps<4>(source + q, met + q, to);
        const int left = columns - q;
        if (left == 1) {
          add_taps<1>(source + q, met + q, to);
        } else if (left == 2) {
          add_taps<2>(source + q, met + q, to);
        } else if (left == 3) {
          add_taps<3>(source + q, met + q, to);
        }
        source += t.pitch;
        met += t.tap_pitch;
      }
    }
  }

  if (t.parts > 1) {  // adds the parts of an item, in order
    __syncthreads();
    float* const shared = tile;  // [sums, threads]
    const auto threads = static_cast<int>(blockDim.x);
#pragma unroll
    for (int i = 0; i < kSets * 4; ++i) shared[i * threads + me] = sums[i / 4][i % 4];
    __syncthreads();
    if (part > 0) return;
#pragma unroll
    for (int i = 0; i < kSets * 4; ++i) {
      for (int k = 1; k < t.parts; ++k) {
        sums[i / 4][i % 4] += shared[i * threads + me + k * t.items()];
      }
    }
  }
  if (!mine) return;

  const float bias = work.b != nullptr ? to_float(work.b[channel]) : 0.0f;
  const int row = p * t.rows.out_step + rows.out_first;
#pragma unroll
  for (int u = 0; u < kSets; ++u) {
    const int column = 4 * (kSets * group + u);
    if (column >= t.out_w) break;
    const std::int64_t at =
        static_cast<std::int64_t>(plane) * (t.out_h * t.out_w) + row * t.out_w + column;
    float out[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      out[j] = sums[(4 * u + j) % kSets][(4 * u + j) / kSets] + bias;
      // Rounds y to its type before the residual is added. A separate kernel for the addition would
      // also read the rounded y, so both give the same bits.
      if (work.residual != nullptr) out[j] = to_float(from_float<T>(out[j]));
    }
    if (work.whole_units) {
      float beside[4] = {};
      if (work.residual != nullptr) load_unit<4>(work.residual + at, beside);
#pragma unroll
      for (int j = 0; j < 4; ++j) out[j] = finished(out[j] + beside[j], work.relu);
      store_unit<4>(work.out + at, out);
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (column + j >= t.out_w) break;
      work.out[at + j] = from_float<T>(finished(out[j], work.residual, at + j, work.relu));
    }
  }
}

// ---- launchers ---------------------------------------------------------------------------------

template <class T, int kEntries, bool kSeparate>
void launch_entries(const SplitWork<T>& work, std::int64_t planes) {
  const SplitPlan& t = work.plan;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(planes), static_cast<unsigned>(t.bands)),
                    .block = dim3(static_cast<unsigned>(t.threads())),
                    .shared_bytes = static_cast<std::size_t>(t.shared_floats()) * sizeof(float)};
  shape.overlaps_previous = true;
  launch(depthwise_split_kernel<T, kEntries, kSeparate>, shape, work);
}

template <class T>
void launch_split(const Conv2dProblem& z, Direction direction, SplitWork<T> work) {
  work.plan = make_split_plan(large_sizes(z, direction));
  const SplitPlan& t = work.plan;
  work.channels = static_cast<int>(z.c);
  work.kernel_h = static_cast<int>(z.r);
  work.kernel_w = static_cast<int>(z.s);
  work.by_channels = FastDivisor(work.channels);
  work.by_kernel_w = FastDivisor(work.kernel_w);
  work.whole_units = t.out_w % 4 == 0 && is_aligned(work.out, 4) && is_aligned(work.residual, 4);
  const std::int64_t planes = z.n * z.c;
  t.entries == 1 ? launch_entries<T, 1, false>(work, planes)
  : t.separate   ? launch_entries<T, 2, true>(work, planes)
                 : launch_entries<T, 2, false>(work, planes);
}

}  // namespace

bool fits_split(const Conv2dProblem& z, Direction direction) {
  if (z.stride_h > 2 || z.stride_w > 2 || !fits_large(z, direction)) return false;
  const LargeSizes sizes = large_sizes(z, direction);
  const SplitPlan plan = make_split_plan(sizes);
  if (plan.band == 0) return false;
  static KeptPlans<bool> kept;
  return *kept.get(z, direction, [&] {
    Cheapest<bool> splits({"conv2d", "depthwise", direction}, DeviceType::cuda, DType::f32);
    splits.offer(false, large_cost(z, direction));
    splits.offer(true, counts_of(plan, sizes));
    return splits.found();
  });
}

Cost split_cost(const Conv2dProblem& z, Direction direction) {
  const LargeSizes sizes = large_sizes(z, direction);
  return counts_of(make_split_plan(sizes), sizes);
}

void forward_by_split(const Conv2dForwardArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_split<T>(args.problem, Direction::forward,
                    {.source = static_cast<const T*>(args.x),
                     .w = static_cast<const T*>(args.w),
                     .b = static_cast<const T*>(args.b),
                     .residual = static_cast<const T*>(args.epilogue.residual),
                     .out = static_cast<T*>(args.y),
                     .relu = args.epilogue.relu});
  });
}

void backward_data_by_split(const Conv2dBackwardDataArgs& args) {
  with_float_type(args.problem.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_split<T>(args.problem, Direction::backward_data,
                    {.source = static_cast<const T*>(args.dy),
                     .w = static_cast<const T*>(args.w),
                     .out = static_cast<T*>(args.dx)});
  });
}

}  // namespace convscope::depthwise
