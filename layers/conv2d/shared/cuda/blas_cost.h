// SPDX-License-Identifier: Apache-2.0
// blas_cost.h: the counts of matrix products of cuBLAS, for the costs of algorithms. cuBLAS does
// not say how it cuts a product into tiles, so these functions count the tiles of one simple rule.
//
// Tile      32, 64 or 128 rows and columns: the smallest side that holds the product, at most 128.
//           While a GPU has more SMs than the product has tiles, the longer side of a tile is
//           halved, down to 32.
// Parts     If tiles of 32 x 32 are still fewer than SMs, a single product is divided along K into
//           parts, whose sums another kernel adds. A batch is not divided.
// Vector    A product with one row or one column reads its matrix once: cuBLAS runs another kernel.
// It contains no CUDA, so tests check it on the CPU.
// Read next  layers/dispatch/cost/cost.h
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/int_math.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/cost/cost.h"

namespace convscope::blas_cost {

// `batch` products [m][k] x [k][n]. `apart` is the distance of two rows in memory, in elements.
struct Products {
  std::int64_t m, n, k, batch = 1, apart = 4;
};

enum class Operands { f32, tf32, half };

inline Operands operands_of(const Conv2dProblem& z) {
  return z.dtype != DType::f32      ? Operands::half
         : z.math == MathMode::tf32 ? Operands::tf32
                                    : Operands::f32;
}

// Returns the kernel. Tensor cores need rows aligned to 16 bytes; other rows have other kernels.
inline const char* schedule_of(const Products& z, Operands type) {
  if (z.m == 1 || z.n == 1) return type == Operands::half ? "half vector" : "vector";
  if (type == Operands::f32) return "f32";
  const bool half = type == Operands::half;
  if (z.apart % 8 == 0) return half ? "half" : "tf32";
  if (z.apart % 4 == 0) return half ? "half by 4" : "tf32 by 4";
  return half ? "half odd" : "tf32 odd";
}

struct Tiles {
  std::int64_t rows, columns, count, parts;
};

inline constexpr std::int64_t kLongestSide = 128, kShortestSide = 32;
inline constexpr std::int64_t kMostParts = 32, kShortestPart = 64;  // elements along K

inline Tiles tiles_of(const Products& z, int multiprocessors) {
  const auto side_of = [](std::int64_t length) {
    std::int64_t side = kShortestSide;
    while (side < kLongestSide && side < length) side *= 2;
    return side;
  };
  Tiles tiles{.rows = side_of(z.m), .columns = side_of(z.n), .count = 0, .parts = 1};
  const auto count = [&] {
    return ceil_div(z.m, tiles.rows) * ceil_div(z.n, tiles.columns) * z.batch;
  };
  while (count() < multiprocessors && std::max(tiles.rows, tiles.columns) > kShortestSide) {
    (tiles.rows >= tiles.columns ? tiles.rows : tiles.columns) /= 2;
  }
  tiles.count = count();
  while (z.batch == 1 && tiles.count * tiles.parts < multiprocessors && tiles.parts < kMostParts &&
         z.k >= 2 * tiles.parts * kShortestPart) {
    tiles.parts *= 2;
  }
  return tiles;
}

// Returns the counts of only the products, executed `calls` times one after another: `issued`,
// `cached`, the grid, the bytes of parts and the launches. A caller adds its other counts.
inline Cost counts_of(const Products& z, Operands type, int multiprocessors, double calls = 1) {
  const bool vector = z.m == 1 || z.n == 1;
  const double element = type == Operands::half ? 2 : 4;
  const double results = number(z.m) * number(z.n) * number(z.batch);
  Cost cost{.schedule = schedule_of(z, type), .launches = calls};
  if (vector) {
    constexpr std::int64_t kResults = 8;  // of a block: one warp for each
    cost.issued = calls * 2 * results * number(z.k);
    cost.cached = calls * element * number(z.k) * number(z.m + z.n) * number(z.batch);
    cost.blocks = number(ceil_div(std::max(z.m, z.n), kResults) * z.batch);
    cost.chain = calls * number(ceil_div(z.k, std::int64_t{32}));
    return cost;
  }
  const Tiles tiles = tiles_of(z, multiprocessors);
  const std::int64_t step = type == Operands::half ? 32 : 16;  // 64 bytes along K
  const std::int64_t steps = ceil_div(ceil_div(z.k, tiles.parts), step);
  const double blocks = number(tiles.count * tiles.parts);
  const double loaded = number((tiles.rows + tiles.columns) * steps * step);
  cost.issued = calls * blocks * 2 * number(tiles.rows * tiles.columns * steps * step);
  cost.cached = calls * blocks * loaded * element;
  cost.blocks = blocks;
  // Blocks of small tiles share the registers that a tile of 128 x 128 fills.
  cost.resident = number(kLongestSide * kLongestSide / (tiles.rows * tiles.columns));
  cost.chain = calls * number(steps);
  cost.tensor_cores = type != Operands::f32;
  if (tiles.parts > 1) {
    cost.pass_bytes = calls * 2 * 4 * number(tiles.parts) * results;  // written, then read
    cost.launches += calls;
  }
  return cost;
}

}  // namespace convscope::blas_cost
