// SPDX-License-Identifier: Apache-2.0
// device_time.cuh: the time of blocks and of matrix products on a GPU, for the costs of algorithms.
// With small grids some SMs are idle; a share of the peak does not show that.
//
// The constants were fitted to times of one NVIDIA H200: half of the layers of the shapes lists and
// half of a hundred random layers, batch 1, 32 and 128. The fit was tested on the other half of the
// layers (layers/conv2d/README.md). The constants are shares of an SM's peak, or microseconds.
// Read next  layers/dispatch/algorithm.h: Cost
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "framework/cuda/launch.cuh"
#include "framework/int_math.h"
#include "framework/machine/peaks.h"
#include "layers/conv2d/algorithm.h"

namespace convscope::device_time {

inline double number(std::int64_t value) { return static_cast<double>(value); }
inline double processors() { return cuda_device_facts().multiprocessors; }

// Returns whether the products of a problem run on tensor cores. peak_of() returns the peak of the
// unit that computes them.
inline bool on_tensor_cores(const Conv2dProblem& z) {
  return z.dtype != DType::f32 || z.math == MathMode::tf32;
}
inline double peak_of(const Conv2dProblem& z) {
  return z.dtype != DType::f32      ? kUnmeasuredGpu.half_flops
         : z.math == MathMode::tf32 ? kUnmeasuredGpu.tf32_flops
                                    : kUnmeasuredGpu.f32_flops;
}

// Shares of an SM's peak: `busy` for all blocks of an SM together, `alone` for a single block,
// which waits for its own loads.
struct TileRate {
  double busy, alone;
};

// Returns the time of blocks of equal work on all SMs: the fullest SM finishes last.
inline double blocks_us(double blocks, double block_flops, double peak, TileRate rate) {
  const double each = 1e6 * block_flops * processors() / peak;
  return std::max(each / rate.alone, std::ceil(blocks / processors()) * each / rate.busy);
}

// `batch` products [m][k] x [k][n] of cuBLAS. `apart` is the distance of two rows in memory, in
// elements. Tensor cores need rows aligned to 16 bytes; f32 is faster with rows aligned to 32.
// cuBLAS uses slower kernels for other rows.
struct Products {
  std::int64_t m, n, k, batch = 1, apart = 4;
};

// Rates of square tiles of 128, 64, 32 and 16 (0: there is no such tile), the time of the call and
// its last wave, and the time to add the parts of a split reduction.
struct ProductTimes {
  TileRate tile[4];
  double around_us, parts_us, part_us = 0;
};
inline constexpr ProductTimes kF32Products{
    {{0.94, 1.3}, {0.82, 0.58}, {0.6, 0.3}, {0.3, 0.089}}, 1.7, 1.9, 0.2};
inline constexpr ProductTimes kTf32Products{{{0.69, 0.76}, {0.37, 0.3}, {0.3, 0.26}}, 2.5, 0.61};
inline constexpr ProductTimes kTf32FourProducts{
    {{0.56, 0.79}, {0.35, 0.27}, {0.12, 0.12}}, 2.1, 0.77};  // rows aligned to 16 bytes only
inline constexpr ProductTimes kTf32OddProducts{
    {{0.28, 0.12}, {0.19, 0.16}, {0.16, 0.088}}, 2.0, 1.9};
inline constexpr ProductTimes kHalfProducts{{{0.97, 1.2}, {1.1, 0.54}, {0.54, 0.3}}, 1.4, 2.1};
inline constexpr ProductTimes kHalfFourProducts{
    {{0.085, 0.2}, {0.24, 0.034}, {0.12, 0.056}}, 2.0, 0.97};  // rows aligned to 8 bytes
inline constexpr ProductTimes kHalfOddProducts{
    {{0.17, 0.21}, {0.13, 0.081}, {0.069, 0.027}}, 2.2, 0.76};
// A product with one row or column is bound by loads: it takes kVectorTimes the time of its FLOPs.
inline constexpr double kVectorUs = 0.55, kVectorTimes = 25;
inline constexpr int kMaxParts = 32, kLeastDepth = 64;  // parts of a reduction, and their length

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
    // Only a single product is split, not a batch.
    for (int parts = 1; parts <= kMaxParts; parts *= 2) {
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

// Returns Cost::peak_share of products that take `us` microseconds.
inline double share_of(double flops, double us, double peak) {
  return std::clamp(1e6 * flops / (peak * std::max(us, 1e-3)), 1e-7, 1.0);
}

// Returns how many bytes a plain copy moves in the time in which one pass writes `bytes` and the
// next pass reads them. The bytes that stay in L2 move faster.
inline constexpr double kCacheBytes = 4.0e7, kOfCached = 0.77;
inline double passed(double bytes) {
  return kOfCached * std::min(bytes, kCacheBytes) + std::max(0.0, bytes - kCacheBytes);
}

// Returns the cost of a call plus `bytes` and `launches` of prepare_weights(). `peak` is the peak
// of the call's FLOPs, in_call_us the further microseconds of the call that prepared weights save.
inline Conv2dCost with_preparation(Conv2dCost cost, double peak, double bytes, double launches,
                                   double in_call_us = 0) {
  const GpuPeaks& gpu = kUnmeasuredGpu;
  const double call = std::max(cost.flops / (peak * cost.peak_share), cost.bytes / gpu.copy_bytes) +
                      cost.pass_bytes / gpu.copy_bytes + cost.launches * gpu.launch_seconds;
  const double more = bytes / gpu.copy_bytes + launches * gpu.launch_seconds;
  cost.pass_bytes += bytes;
  cost.launches += launches;
  cost.prepare_part = (more + in_call_us * 1e-6) / (call + more);
  return cost;
}

}  // namespace convscope::device_time
