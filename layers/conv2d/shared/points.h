// SPDX-License-Identifier: Apache-2.0
// points.h: code shared by convolutions in a transformed domain (Winograd, FFT): tiles are
// transformed to points, each point is a matrix product over channels, and the sums are transformed
// back.
//
// L is the number of lanes; channels are in the lanes. A panel holds pixels of L channels:
// [rows, columns, L].
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// One point of `rows` tiles: out[v out_step + i L + lane] =
//   sum over c < `depth` of v[c / L block_step + i L + c % L] u[(c vectors + v) L + lane].
struct PointProduct {
  int rows = 0, vectors = 0;
  std::int64_t depth = 0;
  const float* v = nullptr;
  std::int64_t block_step = 0;
  const float* u = nullptr;
  float* out = nullptr;
  std::int64_t out_step = 0;
};

// One point of the weights' gradient: out[v out_step + i L + lane] (+)=
//   sum over t < `depth` of x[t L + i] dy[v dy_step + t L + lane], for i < sum_rows.
struct PointSum {
  int vectors = 0;
  bool accumulate = false;
  std::int64_t depth = 0;
  const float* x = nullptr;
  const float* dy = nullptr;
  std::int64_t dy_step = 0;
  float* out = nullptr;
  std::int64_t out_step = 0;
};

struct PointKernels {
  int lanes = 0;        // L
  int rows = 0;         // most tiles of a product
  int vectors = 0;      // most vectors of a product
  int sum_rows = 0;     // channels of a sum; divides L
  int sum_vectors = 0;  // most vectors of a sum
  void (*product)(const PointProduct& z) = nullptr;
  void (*sum)(const PointSum& z) = nullptr;
  // to[i L + lane] = from[lane plane + i] for i < count, lane < lanes; other lanes: 0.
  void (*gather)(const float* from, std::int64_t plane, std::int64_t count, int lanes,
                 float* to) = nullptr;
  // to[lane plane + i] = from[i L + lane] for i < count, lane < lanes.
  void (*scatter)(const float* from, std::int64_t count, int lanes, float* to,
                  std::int64_t plane) = nullptr;
};

extern IsaTable<PointKernels> point_kernels;

// Reads `lanes` consecutive planes [h, w] as panels.
struct Planes {
  std::int64_t h, w;
  // Fills panel[rows, columns, L] with pixels from [row, column] on. Pixels outside the image, and
  // lanes without a channel, become 0.
  void read(const PointKernels& kernels, const float* from, std::int64_t lanes, std::int64_t row,
            std::int64_t column, std::int64_t rows, std::int64_t columns, float* panel) const;
};

// Rounds up to an odd number of cache lines, so that the points of a tile use all cache sets.
inline std::int64_t odd_lines(std::int64_t floats) {
  const std::int64_t lines = (floats + 15) / 16;
  return (lines % 2 == 0 ? lines + 1 : lines) * 16;
}

}  // namespace convscope
