// SPDX-License-Identifier: Apache-2.0
// depthwise_launch.cuh: what the launchers of depthwise_*_cuda.cu share: sizes of one plane, its
// tilings, and the choice of an instantiation.
#pragma once

#include <type_traits>

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/depthwise_tiling.h"
#include "layers/conv2d/problem.h"

namespace convscope::depthwise {

// The convolution of one plane, square kernel, equal strides.
struct PlaneMap {
  int h = 0, w = 0, p = 0, q = 0;  // source and target
  int size = 3, stride = 1;
  int pad_top = 0, pad_left = 0;  // negative when a turned kernel starts inside
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

// Stride 1: from dy to dx.
inline PlaneMap turned(const PlaneMap& map) {
  return {.h = map.p,
          .w = map.q,
          .p = map.h,
          .q = map.w,
          .size = map.size,
          .stride = 1,
          .pad_top = map.size - 1 - map.pad_top,
          .pad_left = map.size - 1 - map.pad_left};
}

inline bool is_aligned(const float* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// Whether the aligned kernels may be used: 16-byte rows, and the usual padding, which is a
// compile-time constant there.
inline bool is_aligned(const PlaneMap& map, const float* source, const float* target) {
  return map.w % 4 == 0 && map.q % 4 == 0 && map.pad_left == (map.size - 1) / 2 &&
         is_aligned(source) && is_aligned(target);
}

constexpr int kForwardRows = 7;  // of y in a strip: the forward pass and backward_weight

// From x to y (or from dy to dx, turned). `all_planes`: neighbours in memory that may share a tile.
inline DepthwiseTiling forward_tiling(const PlaneMap& map, bool aligned, std::int64_t all_planes,
                                      std::int64_t wanted_tiles) {
  const int margin = DepthwiseTiling::kLeftMargin;
  const int first = aligned ? margin - (map.size - 1) / 2 : 0;
  const int window = 3 * map.stride + map.size;
  return make_depthwise_tiling({.in_h = map.h,
                                .in_w = map.w,
                                .out_h = map.p,
                                .out_w = map.q,
                                .shift = aligned ? margin : map.pad_left,
                                .in_origin = -map.pad_top,
                                .out_origin = 0,
                                .in_strip = kForwardRows * map.stride,
                                .out_strip = kForwardRows,
                                .in_extra = map.size - map.stride,
                                .group_step = 4 * map.stride,
                                .window = (first + window + 3) / 4 * 4,
                                .all_planes = all_planes,
                                .wanted_tiles = wanted_tiles,
                                .staged = !aligned,
                                .shared_bytes = cuda_device_facts().shared_bytes_per_block});
}

inline std::int64_t tiles_to_fill_device() {
  return std::int64_t{cuda_device_facts().multiprocessors} * 4;
}

// Calls body with compile-time constants: body(size(), stride(), flag()).
template <class Body>
void for_size_and_stride(int size, int stride, bool flag, Body body) {
  const auto with_flag = [&](auto a, auto b) {
    flag ? body(a, b, std::true_type()) : body(a, b, std::false_type());
  };
  const auto with_stride = [&](auto a) {
    stride == 1 ? with_flag(a, std::integral_constant<int, 1>())
                : with_flag(a, std::integral_constant<int, 2>());
  };
  size == 3   ? with_stride(std::integral_constant<int, 3>())
  : size == 5 ? with_stride(std::integral_constant<int, 5>())
              : with_stride(std::integral_constant<int, 7>());
}

}  // namespace convscope::depthwise
