// SPDX-License-Identifier: Apache-2.0
// gemm_kernels.h: the functions of gemm that depend on the instruction set. A kernel that packs
// panels itself (convolution by im2col) calls the tile function directly.
#pragma once

#include <cstdint>

#include "framework/int_math.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {

// Computes one tile of C, small enough to stay in registers:
//   c[i * c_row + j] = start + sum over k < depth of a[k * a_step + i] * b[k * b_step + j]
// for i < rows, j < columns. start is c itself (accumulate), bias[i], or 0 (no bias).
struct GemmTile {
  int rows = 0;            // 1 .. GemmKernels::rows
  int columns = 0;         // 1 .. GemmKernels::columns; lanes beyond are not accessed
  std::int64_t depth = 0;  // 0 writes the start
  const float* a = nullptr;
  std::int64_t a_step = 0;
  const float* b = nullptr;
  std::int64_t b_step = 0;
  float* c = nullptr;
  std::int64_t c_row = 0;
  const float* bias = nullptr;
  bool accumulate = false;
};

struct GemmKernels {
  int rows = 0;     // largest tile: rows of C ...
  int columns = 0;  // ... and columns: two vectors (four in the scalar code)
  void (*tile)(const GemmTile& tile) = nullptr;
  // Computes to[k * to_step + i] = from[i * from_row + k] for i < rows, k < depth. Does not change
  // other elements of `to`.
  void (*transpose)(const float* from, std::int64_t from_row, std::int64_t rows, std::int64_t depth,
                    float* to, std::int64_t to_step) = nullptr;
};

CONVSCOPE_API extern IsaTable<GemmKernels> gemm_kernels;

// Divides M rows into tiles of nearly equal height. Otherwise, the last tile could have a single
// row.
struct RowTiles {
  std::int64_t rows, tiles;
  RowTiles(std::int64_t m, std::int64_t largest) : rows(m), tiles(ceil_div(m, largest)) {}
  std::int64_t begin(std::int64_t tile) const {
    const std::int64_t rest = rows % tiles;
    return tile * (rows / tiles) + (tile < rest ? tile : rest);
  }
  int height(std::int64_t tile) const { return static_cast<int>(begin(tile + 1) - begin(tile)); }
};

}  // namespace convscope
