// SPDX-License-Identifier: Apache-2.0
// depthwise_tile.cuh: functions for a block's tile of planes. They copy the tile from global to
// shared memory, load a thread's columns of a tile row, and copy a finished run of the target back.
//
// Tiles hold the type T of the tensors, f32, f16 or bf16; registers hold floats. A tile is aligned
// if its rows consist of whole units of 4 or 2 elements and the tensor's address is aligned.
// Aligned tiles are copied asynchronously, unit by unit, together with their zeros; the image
// begins in column 4 of the tile. For other tiles, the source rows are read as one run of
// consecutive elements, 4 at a time. Each element is stored at its position in the tile, which was
// zeroed before.
// Read next  depthwise_tiling.h, the source of the sizes; depthwise_forward_cuda.cu
#pragma once

#include <cstdint>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tiling.h"

namespace convscope::depthwise {

// Returns how many elements `p` is after the last address aligned to 4 elements.
template <class T>
__device__ inline int phase_of(const T* p) {
  return static_cast<int>(reinterpret_cast<std::uintptr_t>(p) / sizeof(T) % 4);
}

// 4 neighbouring elements that are loaded or stored together.
template <class T>
struct alignas(4 * sizeof(T)) Four {
  T v[4];
};

// Loads kUnit neighbours at an aligned address, as floats.
template <int kUnit, class T>
__device__ inline void load_unit(const T* from, float* v) {
  static_assert(kUnit == 2 || kUnit == 4);
  if constexpr (sizeof(T) == 2) {
    unsigned words[2] = {};
    if constexpr (kUnit == 4) {
      const uint2 both = *reinterpret_cast<const uint2*>(from);
      words[0] = both.x, words[1] = both.y;
    } else {
      words[0] = *reinterpret_cast<const unsigned*>(from);
    }
#pragma unroll
    for (int j = 0; j < kUnit / 2; ++j) {
      const float2 two = floats_from_pair<T>(words[j]);
      v[2 * j] = two.x, v[2 * j + 1] = two.y;
    }
  } else if constexpr (kUnit == 4) {
    const float4 unit = *reinterpret_cast<const float4*>(from);
    v[0] = unit.x, v[1] = unit.y, v[2] = unit.z, v[3] = unit.w;
  } else {
    const float2 unit = *reinterpret_cast<const float2*>(from);
    v[0] = unit.x, v[1] = unit.y;
  }
}
template <int kUnit, class T>
__device__ inline void store_unit(T* to, const float* v) {
  static_assert(kUnit == 2 || kUnit == 4);
  if constexpr (sizeof(T) == 2) {
    if constexpr (kUnit == 4) {
      *reinterpret_cast<uint2*>(to) =
          make_uint2(pair_from_floats<T>(v[0], v[1]), pair_from_floats<T>(v[2], v[3]));
    } else {
      *reinterpret_cast<unsigned*>(to) = pair_from_floats<T>(v[0], v[1]);
    }
  } else if constexpr (kUnit == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(v[0], v[1], v[2], v[3]);
  } else {
    *reinterpret_cast<float2*>(to) = make_float2(v[0], v[1]);
  }
}

// ---- into shared memory ------------------------------------------------------------------------

// Returns the address of plane `plane` of [planes, h, w]. It takes one multiplication with a 64-bit
// result.
template <class T>
__device__ inline T* plane_at(T* planes, std::uint32_t plane, int h, int w) {
  return planes + static_cast<std::uint64_t>(plane) * static_cast<std::uint32_t>(h * w);
}

// Starts asynchronous copies, which wait_for_tile() completes. A thread copies the same column of
// every row.
template <int kUnit, class T>
__device__ inline void start_aligned_tile(const DepthwiseTiling& t, const DepthwiseJob& job,
                                          const T* source, T* tile) {
  const T* const base = plane_at(source, job.plane, t.in_h, t.in_w);
  const int units = t.pitch / kUnit;
  const int me = static_cast<int>(threadIdx.x);
  const int at_once = t.rows_at_once;  // 0: rows are longer than the block
  const int first = at_once > 0 ? t.by_units.divide(me) : 0;
  if (at_once == 0 || first < at_once) {
    for (int unit = me - first * units; unit < units; unit += static_cast<int>(blockDim.x)) {
      const int column = kUnit * unit - DepthwiseTiling::kLeftMargin;
      const bool in_row = column >= 0 && column < t.in_w;
#pragma unroll 4
      for (int row = first; row < t.planes * t.rows; row += max(at_once, 1)) {
        const int plane = t.planes == 1 ? 0 : t.by_rows.divide(row);
        const int h = job.in_row + row - plane * t.rows;
        const bool inside = in_row && plane < job.planes &&
                            static_cast<unsigned>(h) < static_cast<unsigned>(t.in_h);
        const int from = inside ? (plane * t.in_h + h) * t.in_w + column : 0;
        async_copy<kUnit * sizeof(T)>(tile + row * t.pitch + kUnit * unit, base + from, inside);
      }
      if (at_once > 0) break;
    }
  }
  async_copy_commit();
}

__device__ inline void wait_for_tile() {
  async_copy_wait<0>();
  __syncthreads();
}

template <class T>
__device__ inline void zero_tile(int count, T* tile) {
  for (int i = 4 * static_cast<int>(threadIdx.x); i < count;
       i += 4 * static_cast<int>(blockDim.x)) {
    *reinterpret_cast<Four<T>*>(tile + i) = Four<T>{};
  }
}

// Loads the elements first ... first + 3 of the run from[0, count), which share an aligned unit.
// Elements outside the run become 0. A unit that is inside the run takes one load.
template <class T>
__device__ inline Four<T> load_piece(const T* from, int first, int count) {
  if (first >= 0 && first + 3 < count) return *reinterpret_cast<const Four<T>*>(from + first);
  Four<T> out = {};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (first + j >= 0 && first + j < count) out.v[j] = from[first + j];
  }
  return out;
}

// Copies a run into a zeroed tile. Needs a barrier before and after the call.
template <class T>
__device__ inline void scatter_tile(const DepthwiseTiling& t, const DepthwiseJob& job,
                                    const T* source, T* tile) {
  const int first_row = t.planes > 1 ? 0 : depthwise_first_row(job);
  const int count =
      (t.planes > 1 ? job.planes * t.in_h : max(0, depthwise_end_row(t, job) - first_row)) * t.in_w;
  const T* const run = plane_at(source, job.plane, t.in_h, t.in_w) + first_row * t.in_w;
  const int phase = phase_of(run);
  const int threads = static_cast<int>(blockDim.x);
  constexpr int kAhead = 4;  // loads in flight in each thread
  for (int i = static_cast<int>(threadIdx.x); 4 * i - phase < count; i += kAhead * threads) {
    Four<T> ahead[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      ahead[a] = load_piece(run, 4 * (i + a * threads) - phase, count);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      const int first = 4 * (i + a * threads) - phase;
      if (first >= count) break;
      const int start = max(first, 0);
      const int above = t.by_in_w.divide(start);
      int column = start - above * t.in_w + t.shift;  // column of the tile
      int plane = t.planes > 1 ? t.by_in_h.divide(above) : 0;
      int row = first_row + above - plane * t.in_h - job.in_row;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (first + j < 0 || first + j >= count) continue;
        if (row >= 0 && row < t.rows && column >= 0 && column < t.pitch) {
          tile[(plane * t.rows + row) * t.pitch + column] = ahead[a].v[j];
        }
        if (++column < t.in_w + t.shift) continue;
        column = t.shift;
        if (++row < t.in_h - job.in_row || t.planes == 1) continue;
        row = -job.in_row;
        ++plane;
      }
    }
  }
}

// Copies the tile of a job with the zeros around the image. After the call all threads may read the
// tile.
template <class T>
__device__ inline void scatter_whole_tile(const DepthwiseTiling& t, const DepthwiseJob& job,
                                          const T* source, T* tile) {
  zero_tile(t.tile_floats(), tile);
  __syncthreads();
  scatter_tile(t, job, source, tile);
  __syncthreads();
}

// ---- out of shared memory ----------------------------------------------------------------------

// Loads v[i] = row[kOffset + i] in units of kUnit elements; `row` is aligned to a unit.
// Unused elements of a unit take no extra time.
template <int kOffset, int kUnit, int kCount, class T>
__device__ inline void load_window(const T* row, float (&v)[kCount]) {
  constexpr int kFirst = kOffset / kUnit;
  constexpr int kUnits = (kOffset + kCount + kUnit - 1) / kUnit - kFirst;
  float all[kUnits * kUnit];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) load_unit<kUnit>(row + kUnit * (kFirst + u), all + kUnit * u);
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = all[kOffset - kFirst * kUnit + i];
}

// Loads 4 elements at `row` in global memory; elements beyond `columns` are 0.
template <int kUnit, class T>
__device__ inline void load_group(const T* row, int columns, float (&v)[4]) {
  if constexpr (kUnit == 4) {
    load_unit<4>(row, v);
  } else if constexpr (kUnit == 2) {
    load_unit<2>(row, v);
    v[2] = v[3] = 0;
    if (columns > 2) load_unit<2>(row + 2, v + 2);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[j] = j < columns ? to_float(row[j]) : 0.0f;
  }
}

template <int kUnit, class T>
__device__ inline void store_group(T* row, int columns, const float (&v)[4]) {
  if constexpr (kUnit == 4) {
    store_unit<4>(row, v);
  } else if constexpr (kUnit == 2) {
    store_unit<2>(row, v);
    if (columns > 2) store_unit<2>(row + 2, v + 2);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j < columns) row[j] = from_float<T>(v[j]);
    }
  }
}

// ---- the target --------------------------------------------------------------------------------

// The rows of the target that belong to a tile, stored as one run in memory.
template <class T>
struct TargetRun {
  T* to = nullptr;
  int count = 0;      // elements
  int first_row = 0;  // index in the target plane
};

template <class T>
__device__ inline TargetRun<T> target_run(const DepthwiseTiling& t, const DepthwiseJob& job,
                                          T* target) {
  const int first = max(job.out_row, 0);
  const int end = min(job.out_row + t.strips * t.out_strip, t.out_h);
  const int rows = t.planes > 1 ? job.planes * t.out_h : max(0, end - first);
  return {plane_at(target, job.plane, t.out_h, t.out_w) + first * t.out_w, rows * t.out_w, first};
}

// Copies staged[phase_of(run.to) + i] to run.to[i].
template <class T>
__device__ inline void store_run(const TargetRun<T>& run, const T* staged) {
  const int phase = phase_of(run.to);
  for (int first = 4 * static_cast<int>(threadIdx.x) - phase; first < run.count;
       first += 4 * static_cast<int>(blockDim.x)) {
    const T* const from = staged + phase + first;
    if (first >= 0 && first + 3 < run.count) {
      *reinterpret_cast<Four<T>*>(run.to + first) = *reinterpret_cast<const Four<T>*>(from);
      continue;
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j >= 0 && first + j < run.count) run.to[first + j] = from[j];
    }
  }
}

}  // namespace convscope::depthwise
