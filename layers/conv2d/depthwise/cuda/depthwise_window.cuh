// SPDX-License-Identifier: Apache-2.0
// depthwise_window.cuh: loads a window, the elements of x that a few neighbouring results of a
// depthwise convolution read, from memory to registers. Shared by depthwise_window_*_cuda.cu.
// Read next  depthwise_window_cuda.cu, depthwise_window_weight_cuda.cu
#pragma once

#include "framework/int_math.h"
#include "layers/conv2d/depthwise/cuda/depthwise_launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tile.cuh"

namespace convscope::depthwise {

// The elements of x that a thread loads for kColumns neighbouring results in each of kRows rows,
// with the usual padding on the left. The window is loaded in units of kUnit elements, and begins
// kBefore units left of the results.
template <int kSize, int kStride, int kColumns, int kRows>
struct Window {
  static constexpr int kUnit = kColumns * kStride < 4 ? 2 : 4;
  static constexpr int kPad = (kSize - 1) / 2;
  static constexpr int kBefore = ceil_div(kPad, kUnit);
  static constexpr int kOffset = kBefore * kUnit - kPad;  // first column that is read
  static constexpr int kWide = round_up(kOffset + (kColumns - 1) * kStride + kSize, kUnit);
  static constexpr int kHigh = (kRows - 1) * kStride + kSize;
  // Returns the first unit of the window of `group`.
  __device__ static int first_unit(int group) {
    return group * (kColumns * kStride / kUnit) - kBefore;
  }
};

__device__ inline int clamped(int at, int size) { return min(max(at, 0), size - 1); }
__device__ inline bool is_inside(int at, int size) {
  return static_cast<unsigned>(at) < static_cast<unsigned>(size);
}

// Loads v[i][..] = units first, first + 1 ... of row h0 + i of a plane. Elements outside the plane
// become 0: the nearest unit is loaded and ignored, so that all loads are issued without branches
// and are in flight at once.
template <int kUnit, int kHigh, int kWide, class T>
__device__ inline void load_window_of(const T* plane, int h0, int h, int first, int w,
                                      float (&v)[kHigh][kWide]) {
  constexpr int kUnits = kWide / kUnit;
  const int units = w / kUnit;
#pragma unroll
  for (int i = 0; i < kHigh; ++i) {
    const T* const row = plane + clamped(h0 + i, h) * w;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      load_unit<kUnit>(row + kUnit * clamped(first + u, units), v[i] + kUnit * u);
    }
  }
#pragma unroll
  for (int i = 0; i < kHigh; ++i) {
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      if (!is_inside(h0 + i, h) || !is_inside(first + j / kUnit, units)) v[i][j] = 0;
    }
  }
}

// The barrier keeps the loads of a window together. Without the barrier the compiler would move
// each load to its first product to save registers, and the loads would be sequential.
__device__ inline void keep_loads_together() { __syncthreads(); }

// Returns how many columns of the target a thread computes, or 0 if rows do not consist of whole
// units.
inline int window_columns(const PlaneMap& map) {
  const int columns = unit_of_rows(map.q);
  if (columns == 0 || map.pad_left != (map.size - 1) / 2) return 0;
  return map.w % std::min(4, columns * map.stride) == 0 ? columns : 0;
}

inline bool is_whole(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace convscope::depthwise
