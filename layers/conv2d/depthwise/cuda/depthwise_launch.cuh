// SPDX-License-Identifier: Apache-2.0
// depthwise_launch.cuh: functions shared by the launchers of depthwise_*_cuda.cu. They compute the
// sizes of one plane and its tilings, and choose a template instance.
// Read next  depthwise_tiling.h; depthwise_forward_cuda.cu
#pragma once

#include <algorithm>
#include <type_traits>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise/cuda/depthwise_tiling.h"
#include "layers/conv2d/problem.h"

namespace convscope::depthwise {

// The convolution of one plane with a square kernel and equal strides.
struct PlaneMap {
  int h = 0, w = 0, p = 0, q = 0;  // source and target
  int size = 3, stride = 1;
  int pad_top = 0, pad_left = 0;  // negative when the rotated kernel starts inside the image
};

inline PlaneMap plane_map(const Conv2dProblem& z) {
  return {.h = static_cast<int>(z.h),
          .w = static_cast<int>(z.w),
          .p = static_cast<int>(z.p()),
          .q = static_cast<int>(z.q()),
          .size = static_cast<int>(z.r),
          .stride = static_cast<int>(z.stride_h),
          .pad_top = static_cast<int>(z.pad_top),
          .pad_left = static_cast<int>(z.pad_left)};
}

// Returns the convolution that computes dx from dy for stride 1, with the rotated kernel.
inline PlaneMap rotated(const PlaneMap& map) {
  return {.h = map.p,
          .w = map.q,
          .p = map.h,
          .q = map.w,
          .size = map.size,
          .stride = 1,
          .pad_top = map.size - 1 - map.pad_top,
          .pad_left = map.size - 1 - map.pad_left};
}

// Returns how many elements (4 or 2) can be copied at once in rows of `columns` elements, or 0.
// This number is called a unit.
inline int unit_of_rows(int columns) { return columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 0; }
// Returns the unit for copying rows of the source, or 0. Copies in units require the usual padding,
// which the kernels take as a compile-time constant.
inline int source_unit(const PlaneMap& map) {
  return map.pad_left == (map.size - 1) / 2 ? unit_of_rows(map.w) : 0;
}
// Returns the unit that is possible for both source and target rows, or 0.
inline int unit_of(const PlaneMap& map) { return std::min(source_unit(map), unit_of_rows(map.q)); }
template <class T>
bool is_aligned(const T* p, int unit) {
  return unit == 0 || reinterpret_cast<std::uintptr_t>(p) % (sizeof(T) * unit) == 0;
}

// Returns the tiling of a forward pass from x to y, or of a pass from dy to dx with the rotated
// kernel. A strip has `rows` rows of the target.
inline DepthwiseTiling forward_tiling(const PlaneMap& map, int rows, int unit, bool staged,
                                      std::int64_t channels, std::int64_t wanted_tiles) {
  const int margin = DepthwiseTiling::kLeftMargin;
  const bool aligned = unit > 0;
  const int first = aligned ? margin - (map.size - 1) / 2 : 0;
  const int window = 3 * map.stride + map.size;
  return make_depthwise_tiling({.in_h = map.h,
                                .in_w = map.w,
                                .out_h = map.p,
                                .out_w = map.q,
                                .shift = aligned ? margin : map.pad_left,
                                .in_origin = -map.pad_top,
                                .out_origin = 0,
                                .in_strip = rows * map.stride,
                                .out_strip = rows,
                                .in_extra = map.size - map.stride,
                                .group_step = 4 * map.stride,
                                .window = (first + window + 3) / 4 * 4,
                                .channels = static_cast<int>(channels),
                                .wanted_tiles = wanted_tiles,
                                .unit = aligned ? unit : 4,
                                .staged = staged,
                                .shared_bytes = cuda_device_facts().shared_bytes_per_block});
}

// Returns how many tiles each image needs so that all SMs are busy.
inline std::int64_t tiles_to_fill_device(std::int64_t images) {
  return ceil_div(std::int64_t{cuda_device_facts().multiprocessors} * 4, images);
}

// Returns a launch with one block for each tile of each image; its grid indices replace divisions.
inline LaunchShape shape_of(const DepthwiseTiling& t, std::int64_t images, std::int64_t channels,
                            std::size_t shared_bytes) {
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(t.bands),
                                 static_cast<unsigned>(t.chunks(static_cast<int>(channels))),
                                 static_cast<unsigned>(images)),
                    .block = dim3(static_cast<unsigned>(t.threads())),
                    .shared_bytes = shared_bytes};
  shape.overlaps_previous = true;
  return shape;
}

// Calls body(size(), stride(), unit()) with compile-time constants, for strides up to kStrides.
template <int kStrides = 2, class Body>
void for_size_stride_unit(int size, int stride, int unit, Body body) {
  const auto with_unit = [&](auto a, auto b) {
    unit == 4   ? body(a, b, std::integral_constant<int, 4>())
    : unit == 2 ? body(a, b, std::integral_constant<int, 2>())
                : body(a, b, std::integral_constant<int, 0>());
  };
  const auto with_stride = [&](auto a) {
    if (kStrides == 1 || stride == 1) return with_unit(a, std::integral_constant<int, 1>());
    with_unit(a, std::integral_constant<int, kStrides>());
  };
  size == 3   ? with_stride(std::integral_constant<int, 3>())
  : size == 5 ? with_stride(std::integral_constant<int, 5>())
              : with_stride(std::integral_constant<int, 7>());
}

}  // namespace convscope::depthwise
