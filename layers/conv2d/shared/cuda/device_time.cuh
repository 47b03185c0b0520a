// SPDX-License-Identifier: Apache-2.0
// device_time.cuh: how long blocks and products of matrices take on a GPU, for the costs of cards:
// small grids leave multiprocessors without work, and shares of a peak alone do not see it.
//
// Numbers were fitted to times of one NVIDIA H200: half of the layers of the shapes lists and of a
// hundred random ones, batch 1, 32 and 128; the other half showed what they are worth
// (layers/conv2d/README.md). They are parts of a multiprocessor's peak, or microseconds.
// Read next  layers/dispatch/card.h: Cost
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "framework/int_math.h"
#include "framework/machine/ceilings.h"
#include "layers/conv2d/algorithm.h"

namespace convscope::device_time {

inline double number(std::int64_t value) { return static_cast<double>(value); }
inline double processors() { return cuda_device_facts().multiprocessors; }

// The peak that shares of a problem's products are said of.
inline bool on_tensor_cores(const Conv2dProblem& z) {
  return z.dtype != DType::f32 || z.math == MathMode::tf32;
}
inline double peak_of(const Conv2dProblem& z) {
  return z.dtype != DType::f32      ? kUnmeasuredGpu.half_flops
         : z.math == MathMode::tf32 ? kUnmeasuredGpu.tf32_flops
                                    : kUnmeasuredGpu.f32_flops;
}

// Of a multiprocessor's peak: what its blocks reach together, and what one reaches alone, which
// waits for its own loads.
struct TileRate {
  double busy, alone;
};

// Blocks of equal work, dealt to the multiprocessors: the fullest of them is done last.
inline double blocks_us(double blocks, double block_flops, double peak, TileRate rate) {
  const double each = 1e6 * block_flops * processors() / peak;
  return std::max(each / rate.alone, std::ceil(blocks / processors()) * each / rate.busy);
}

// `batch` products [m][k] x [k][n] of cuBLAS. `apart`: of rows in memory, elements: tensor cores
// want them on 16 bytes, those of f32 better on 32, and products of other rows are made by slower
// kernels.
struct Products {
  std::int64_t m, n, k, batch = 1, apart = 4;
};

// Of square tiles of 128, 64, 32 and 16; what the call and its last wave take; and the sum of
// a depth that was cut into parts, which adds one part after the other. A rate of 0: no such tile.
struct ProductTimes {
  TileRate tile[4];
  double around_us, parts_us, part_us = 0;
};
inline constexpr ProductTimes kF32Products{
    {{0.94, 1.3}, {0.82, 0.58}, {0.6, 0.3}, {0.3, 0.089}}, 1.7, 1.9, 0.2};
inline constexpr ProductTimes kTf32Products{{{0.69, 0.76}, {0.37, 0.3}, {0.3, 0.26}}, 2.5, 0.61};
inline constexpr ProductTimes kTf32FourProducts{
    {{0.56, 0.79}, {0.35, 0.27}, {0.12, 0.12}}, 2.1, 0.77};  // rows on 16 bytes alone
inline constexpr ProductTimes kTf32OddProducts{
    {{0.28, 0.12}, {0.19, 0.16}, {0.16, 0.088}}, 2.0, 1.9};
inline constexpr ProductTimes kHalfProducts{{{0.97, 1.2}, {1.1, 0.54}, {0.54, 0.3}}, 1.4, 2.1};
inline constexpr ProductTimes kHalfFourProducts{
    {{0.085, 0.2}, {0.24, 0.034}, {0.12, 0.056}}, 2.0, 0.97};  // rows on 8 bytes
inline constexpr ProductTimes kHalfOddProducts{
    {{0.17, 0.21}, {0.13, 0.081}, {0.069, 0.027}}, 2.2, 0.76};
// A row or a column: bound by loads, this many times as long as its FLOPs.
inline constexpr double kVectorUs = 0.55, kVectorTimes = 25;
inline constexpr int kMostParts = 32, kLeastDepth = 64;  // parts of a depth, and how short they are

inline double products_us(const Products& p, double peak, const ProductTimes& times) {
  const double results = number(p.m) * number(p.n) * number(p.batch);
  if (p.m == 1 || p.n == 1) {
    return kVectorUs + kVectorTimes * 2e6 * results * number(p.k) / kUnmeasuredGpu.f32_flops;
  }
  constexpr int kSides[] = {128, 64, 32, 16};
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t side = kSides[i];
    if (times.tile[i].busy == 0) continue;
    const double tiles = number(ceil_div(p.m, side) * ceil_div(p.n, side)) * number(p.batch);
    // Only a product that stands alone is cut.
    for (int parts = 1; parts <= kMostParts; parts *= 2) {
      if (parts > 1 && (p.k < kLeastDepth * parts || p.batch > 1)) break;
      const double depth = std::ceil(number(p.k) / parts / 16) * 16;
      double us = blocks_us(tiles * parts, 2 * number(side * side) * depth, peak, times.tile[i]);
      if (parts > 1) {
        us += times.parts_us + times.part_us * parts +
              8e6 * parts * results / kUnmeasuredGpu.copy_bytes;
      }
      if (best == 0 || us < best) best = us;
    }
  }
  return best + times.around_us;
}
inline double f32_products_us(const Products& p) {
  return products_us(p, kUnmeasuredGpu.f32_flops, kF32Products);
}
inline double products_us(const Products& p, const Conv2dProblem& z) {
  if (!on_tensor_cores(z)) return f32_products_us(p);
  const bool half = z.dtype != DType::f32;
  const ProductTimes& times = p.apart % 8 == 0   ? half ? kHalfProducts : kTf32Products
                              : p.apart % 4 == 0 ? half ? kHalfFourProducts : kTf32FourProducts
                              : half             ? kHalfOddProducts
                                                 : kTf32OddProducts;
  return products_us(p, peak_of(z), times);
}

// Cost::peak_share of products that take so long.
inline double share_of(double flops, double us, double peak) {
  return std::clamp(1e6 * flops / (peak * std::max(us, 1e-3)), 1e-7, 1.0);
}

// Bytes that one pass writes and the next reads, as bytes of a copy: what the second cache holds is
// moved faster than that.
inline constexpr double kCacheBytes = 4.0e7, kOfCached = 0.77;
inline double passed(double bytes) {
  return kOfCached * std::min(bytes, kCacheBytes) + std::max(0.0, bytes - kCacheBytes);
}

// The cost of a call with `bytes` and `launches` more, which prepare_weights() takes. `peak` is
// that of its flops. in_call_us: of what the cost says of the call, microseconds that prepared
// weights do not take either.
inline Conv2dCost with_preparation(Conv2dCost cost, double peak, double bytes, double launches,
                                   double in_call_us = 0) {
  const GpuCeilings& gpu = kUnmeasuredGpu;
  const double call = std::max(cost.flops / (peak * cost.peak_share), cost.bytes / gpu.copy_bytes) +
                      cost.pass_bytes / gpu.copy_bytes + cost.launches * gpu.launch_seconds;
  const double more = bytes / gpu.copy_bytes + launches * gpu.launch_seconds;
  cost.pass_bytes += bytes;
  cost.launches += launches;
  cost.prepare_part = (more + in_call_us * 1e-6) / (call + more);
  return cost;
}

}  // namespace convscope::device_time
