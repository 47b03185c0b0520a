// SPDX-License-Identifier: Apache-2.0
// depthwise_large.cuh: the inner loops of depthwise convolution with large kernels on the GPU, for
// all directions. A thread keeps its results in registers and adds the rows of the source one after
// another. Source and taps are in shared memory.
// Read next  depthwise_large_plan.h, the source of the sizes; depthwise_large_cuda.cu
#pragma once

#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_large_plan.h"

namespace convscope::depthwise {

// Loads v[i] = from[i] in units of kUnit floats. `from` is aligned to a unit; the last unit may
// read more floats than needed.
template <int kUnit, int kCount>
__device__ inline void load_floats(const float* from, float (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += kUnit) {
    if constexpr (kUnit == 4) {
      const float4 unit = *reinterpret_cast<const float4*>(from + i);
      v[i] = unit.x;
      if (i + 1 < kCount) v[i + 1] = unit.y;
      if (i + 2 < kCount) v[i + 2] = unit.z;
      if (i + 3 < kCount) v[i + 3] = unit.w;
    } else if constexpr (kUnit == 2) {
      const float2 unit = *reinterpret_cast<const float2*>(from + i);
      v[i] = unit.x;
      if (i + 1 < kCount) v[i + 1] = unit.y;
    } else {
      v[i] = from[i];
    }
  }
}

// The taps that one row of the source is multiplied by. For row o of the results they are the row
// of taps rows[o], where o is in [low, high]. The pointers of other rows point to some valid row,
// so that all loads can be issued without a branch.
template <int kRows>
struct MetRows {
  const float* rows[kRows];
  int low = 0, high = 0;
};

// Adds the products of kTaps neighbouring taps of each row with the source from `source` on. The
// same code runs whether all or only some rows of results are in [low, high], because a copy of the
// code for each case would not fit into the instruction cache.
template <int kUnit, int kTaps, int kRows, int kColumns>
__device__ inline void add_taps(const float* source, const MetRows<kRows>& met, int q,
                                float (&sums)[kRows][kColumns]) {
  float v[kColumns + kTaps - 1];
  float t[kRows][kTaps];
  load_floats<kUnit>(source + q, v);
#pragma unroll
  for (int o = 0; o < kRows; ++o) load_floats<4>(met.rows[o] + q, t[o]);
#pragma unroll
  for (int o = 0; o < kRows; ++o) {
    if (o < met.low || o > met.high) continue;
#pragma unroll
    for (int s = 0; s < kTaps; ++s) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[o][j] = fmaf(v[j + s], t[o][s], sums[o][j]);
    }
  }
}

// The correlation that a thread computes.
struct Correlation {
  const float* source = nullptr;  // [rows, pitch], at the thread's first column
  int row = 0;                    // row of `source` for output 0 and tap 0; may be outside
  int rows = 0;                   // of `source`
  const float* taps = nullptr;    // [tap_rows, tap_pitch]
  int tap_rows = 0, tap_columns = 0;
  bool active = false;
};

// Adds all products of the correlation to `sums`. All lanes of a warp must call it, because they
// loop over the same range of rows, which is the union of the rows that the lanes need. A row
// outside the source is read from `zeros`.
template <int kUnit, int kRows, int kColumns>
__device__ inline void correlate(const Correlation& c, int pitch, int tap_pitch, const float* zeros,
                                 float (&sums)[kRows][kColumns]) {
  int begin = c.active ? max(0, -c.row) : 1 << 30;
  int end = c.active ? min(kRows + c.tap_rows - 1, c.rows - c.row) : 0;
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    begin = min(begin, __shfl_xor_sync(kAllLanes, begin, offset));
    end = max(end, __shfl_xor_sync(kAllLanes, end, offset));
  }
  if (!c.active) return;
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    const int row = c.row + i;
    const float* const source = row >= 0 && row < c.rows ? c.source + row * pitch : zeros;
    MetRows<kRows> met;
    met.low = max(0, i - c.tap_rows + 1);
    met.high = min(kRows - 1, i);
#pragma unroll
    for (int o = 0; o < kRows; ++o) {
      met.rows[o] = c.taps + min(max(i - o, 0), max(c.tap_rows - 1, 0)) * tap_pitch;
    }
    int q = 0;
#pragma unroll 1
    for (; q + 4 <= c.tap_columns; q += 4) add_taps<kUnit, 4>(source, met, q, sums);
    const int left = c.tap_columns - q;
    if (left == 1) {
      add_taps<kUnit, 1>(source, met, q, sums);
    } else if (left == 2) {
      add_taps<kUnit, 2>(source, met, q, sums);
    } else if (left == 3) {
      add_taps<kUnit, 3>(source, met, q, sums);
    }
  }
}

// ---- into shared memory ------------------------------------------------------------------------

// A thread's loop over [slots, rows, width]. The thread keeps its column, so values that depend on
// the column are computed once. In each step the block processes as many whole rows as it has
// threads for, or a part of one row when a row is longer than the block.
struct Walk {
  int slot = 0, row = 0;
  int slots = 0, rows = 1;
  int slots_at_once = 0, rows_at_once = 1;

  // Sets first_column to the thread's first column. The caller advances by the block's size to the
  // further columns.
  __device__ Walk(int slots_of_block, int rows_of_slot, int width, int& first_column)
      : slots(slots_of_block), rows(rows_of_slot) {
    const int threads = static_cast<int>(blockDim.x);
    const int me = static_cast<int>(threadIdx.x);
    const int at_once = max(1, threads / max(1, width));
    const int above = threads < width ? 0 : me / max(1, width);
    first_column = me - above * width;
    slots_at_once = at_once / max(1, rows);
    rows_at_once = at_once - slots_at_once * rows;
    slot = above / max(1, rows);
    row = above - slot * rows;
    if (above >= at_once) slot = slots;  // threads beyond whole rows are idle
  }
  __device__ bool more() const { return slot < slots; }
  __device__ void step() {
    slot += slots_at_once;
    row += rows_at_once;
    if (row >= rows) {
      row -= rows;
      ++slot;
    }
  }
};

// Copies elements to `to`. For each (slot, row, column), place() returns the index in `to` and sets
// the address `from`; elements with a negative index are skipped. A thread issues the loads of 16
// elements before it stores the first of them.
template <class T, class Place>
__device__ inline void scatter(int slots, int rows, int width, float* to, Place place) {
  if (rows <= 0) return;  // a band below the image, in the padding
  constexpr int kAhead = 16;
  int column = 0;
  const Walk start(slots, rows, width, column);
  for (; column < width; column += static_cast<int>(blockDim.x)) {
    Walk walk = start;
    while (walk.more()) {
      int at[kAhead];
      T ahead[kAhead];
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        const T* from = nullptr;
        at[a] = walk.more() ? place(walk.slot, walk.row, column, from) : -1;
        ahead[a] = at[a] >= 0 ? *from : T{};
        walk.step();
      }
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (at[a] >= 0) to[at[a]] = to_float(ahead[a]);
      }
    }
  }
}

__device__ inline void zero_floats(int count, float* to) {
  for (int i = 4 * static_cast<int>(threadIdx.x); i < count;
       i += 4 * static_cast<int>(blockDim.x)) {
    *reinterpret_cast<float4*>(to + i) = make_float4(0, 0, 0, 0);
  }
}

// Returns the first source row, counted within a residue class, of the tile of a band.
__device__ inline int first_of(const Line& line, int band_start) {
  return max(0, band_start + line.tile_start);
}

// Copies `slots` planes of the source to tile[slot][residue class][tile row][pitch], which the
// caller has set to zero. Plane `slot` begins at source[offsets[slot]]; a negative offset means
// that the plane does not exist.
template <class T>
__device__ inline void stage_sources(const LargePlan& t, int band_start, const T* source,
                                     const std::int64_t* offsets, float* tile) {
  const Axis& rows = t.rows;
  const Axis& columns = t.columns;
  int first_row = 1 << 30;  // in memory
  for (int i = 0; i < rows.count; ++i) {
    first_row = min(first_row, rows.source_step * first_of(rows.lines[i], band_start));
  }
  const int run_rows = min(t.run_rows, t.in_h - first_row);
  if (t.sources == 1) {
    const int left = columns.lines[0].left;
    const int down = first_row - first_of(rows.lines[0], band_start);
    scatter<T>(t.slots, min(run_rows, t.tile_rows), t.in_w, tile,
               [&](int slot, int row, int column, const T*& from) {
                 const std::int64_t offset = offsets[slot];
                 from = source + offset + (first_row + row) * t.in_w + column;
                 return offset < 0 ? -1
                                   : (slot * t.tile_rows + down + row) * t.pitch + left + column;
               });
    return;
  }
  scatter<T>(t.slots, run_rows, t.in_w, tile, [&](int slot, int below, int column, const T*& from) {
    const int row = first_row + below;
    const int place = columns.by_source_step.divide(column);
    const int i_column = columns.line_of_source[column - place * columns.source_step];
    const int class_row = rows.by_source_step.divide(row);
    const int i_row = rows.line_of_source[row - class_row * rows.source_step];
    const int tile_row = class_row - first_of(rows.lines[i_row], band_start);
    const std::int64_t offset = offsets[slot];
    from = source + offset + row * t.in_w + column;
    if (offset < 0 || tile_row < 0 || tile_row >= t.tile_rows) return -1;
    const int of = slot * t.sources + i_row * columns.count + i_column;
    return (of * t.tile_rows + tile_row) * t.pitch + columns.lines[i_column].left + place;
  });
}

// Calls body(T{}) in device code.
template <class Body>
__device__ inline void with_type(DType type, Body&& body) {
  if (type == DType::f32) {
    body(float{});
  } else if (type == DType::bf16) {
    body(BFloat16{});
  } else {
    body(Float16{});
  }
}

}  // namespace convscope::depthwise
