// SPDX-License-Identifier: Apache-2.0
// depthwise_large.cuh: the inner loops that all directions of depthwise convolution with large
// kernels share on the GPU: a thread's piece of the result in registers, over which the rows of the
// source in shared memory pass one after the other.
// Read next  depthwise_large_plan.h, where the numbers come from; depthwise_large_cuda.cu
#pragma once

#include "framework/cuda/half.cuh"
#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_large_plan.h"

namespace convscope::depthwise {

// v[i] = from[i], where from is aligned to kUnit floats; what a unit brings beyond is dropped.
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

// Adds a row of the source, times a row of `count` taps each, to the rows kLow ... kHigh of the
// sums. `taps` is the row that kLow meets; those of the next rows of sums stand before it.
template <int kUnit, int kLow, int kHigh, int kRows, int kColumns>
__device__ inline void add_source_row(const float* source, const float* taps, int tap_pitch,
                                      int count, float (&sums)[kRows][kColumns]) {
  int q = 0;
#pragma unroll 1
  for (; q + 4 <= count; q += 4) {
    float v[kColumns + 3];
    load_floats<kUnit>(source + q, v);
#pragma unroll
    for (int o = kLow; o <= kHigh; ++o) {
      const float4 t = *reinterpret_cast<const float4*>(taps - (o - kLow) * tap_pitch + q);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        sums[o][j] = fmaf(v[j], t.x, sums[o][j]);
        sums[o][j] = fmaf(v[j + 1], t.y, sums[o][j]);
        sums[o][j] = fmaf(v[j + 2], t.z, sums[o][j]);
        sums[o][j] = fmaf(v[j + 3], t.w, sums[o][j]);
      }
    }
  }
  if (q == count) return;
  float v[kColumns + 2];
  load_floats<kUnit>(source + q, v);
#pragma unroll
  for (int s = 0; s < 3; ++s) {
    if (q + s >= count) break;
#pragma unroll
    for (int o = kLow; o <= kHigh; ++o) {
      const float t = taps[q + s - (o - kLow) * tap_pitch];
#pragma unroll
      for (int j = 0; j < kColumns; ++j) sums[o][j] = fmaf(v[j + s], t, sums[o][j]);
    }
  }
}

// The same for rows known at run time.
template <int kUnit, int kRows, int kColumns>
__device__ inline void add_source_row(int low, int high, const float* source, const float* taps,
                                      int tap_pitch, int count, float (&sums)[kRows][kColumns]) {
  const auto when = [&](auto first, auto last) {
    constexpr int kLow = first(), kHigh = last();
    if constexpr (kLow <= kHigh && kHigh < kRows) {
      if (low == kLow && high == kHigh) {
        add_source_row<kUnit, kLow, kHigh>(source, taps, tap_pitch, count, sums);
      }
    }
  };
  const auto each_high = [&](auto first) {
    when(first, std::integral_constant<int, 3>());
    when(first, std::integral_constant<int, 2>());
    when(first, std::integral_constant<int, 1>());
    when(first, std::integral_constant<int, 0>());
  };
  each_high(std::integral_constant<int, 0>());
  each_high(std::integral_constant<int, 1>());
  each_high(std::integral_constant<int, 2>());
  each_high(std::integral_constant<int, 3>());
}

// What a thread correlates: its sums begin at row `row` and column `column` of the source's class,
// as tap 0 sees them.
struct Correlation {
  const float* source = nullptr;  // [rows, pitch], at the thread's first column
  int row = 0;                    // of `source`, of out 0 and tap 0; may lie outside
  int rows = 0;                   // of `source`
  const float* taps = nullptr;    // [tap_rows, tap_pitch]
  int tap_rows = 0, tap_columns = 0;
  bool active = false;
};

// All lanes of a warp call it. A row outside the source is read from `zeros`, and where no lane of
// the warp has a row, the loop does not begin.
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
    const bool inside = row >= 0 && row < c.rows;
    const int low = max(0, i - c.tap_rows + 1);
    const int high = min(kRows - 1, i);
    add_source_row<kUnit>(low, high, inside ? c.source + row * pitch : zeros,
                          c.taps + (i - low) * tap_pitch, tap_pitch, c.tap_columns, sums);
  }
}

// ---- into shared memory ------------------------------------------------------------------------

// Rows of [rows, pitch] floats by whole warps: element `place` of a row is what value(row, place)
// says.
template <class Start, class Value>
__device__ inline void fill_rows(int rows, int pitch, float* to, Start start, Value value) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warps = static_cast<int>(blockDim.x) / 32;
#pragma unroll 4
  for (int row = static_cast<int>(threadIdx.x) / 32; row < rows; row += warps) {
    const auto begun = start(row);
    for (int place = lane; place < pitch; place += 32) {
      to[row * pitch + place] = value(begun, place);
    }
  }
}

// Where a row of a tile stands in memory.
template <class T>
struct SourceRow {
  const T* from = nullptr;  // null: zeros
  int left = 0, size = 0, step = 1;

  __device__ float at(int place) const {
    const int column = place - left;
    const bool inside = from != nullptr && column >= 0 && column < size;
    return inside ? to_float(from[column * step]) : 0.0f;
  }
};

// The first element of a line of rows that the tile of a band holds.
__device__ inline int first_of(const Line& line, int band_start) {
  return max(0, band_start + line.tile_start);
}

// The tiles of `slots` planes: tile[slot][source class][tile row][pitch]; plane_of(slot) is where
// plane and null where there is none.
template <class T, class PlaneOf>
__device__ inline void stage_sources(const LargePlan& t, int band_start, float* tile,
                                     PlaneOf plane_of) {
  fill_rows(
      t.slots * t.sources * t.tile_rows, t.pitch, tile,
      [&](int at) {
        const int above = at / t.tile_rows;
        const int slot = t.sources == 1 ? above : above / t.sources;
        const int entry = above - slot * t.sources;
        const int i = t.sources == 1 ? 0 : entry / t.columns.count;
        const Line& rows = t.rows.lines[i];
        const Line& columns = t.columns.lines[entry - i * t.columns.count];
        const int row = first_of(rows, band_start) + at - above * t.tile_rows;
        const T* const plane = plane_of(slot);
        SourceRow<T> out{
            .left = columns.left, .size = columns.source_size, .step = t.columns.source_step};
        if (plane != nullptr && row < rows.source_size) {
          out.from =
              plane +
              static_cast<std::int64_t>(rows.source_first + row * t.rows.source_step) * t.in_w +
              columns.source_first;
        }
        return out;
      },
      [](const SourceRow<T>& row, int place) { return row.at(place); });
}

// body(T{}) on the device.
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
