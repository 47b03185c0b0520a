// SPDX-License-Identifier: Apache-2.0
// sparse_kernels.h: the parts of sparse convolution on the CPU that depend on the instruction set:
// entries of a map spread out, a tile of sites, and a piece of a tap's dw.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Entries of one row of a SparseTable (map.h) for `count` sites:
//   to[s step + i] = the neighbour of tap s of the row, or -1
struct SparseSpreadTask {
  const std::uint32_t* entries;  // of the first site
  const std::uint16_t* places;   // site i is place places[i]; null: i
  int count;
  int run;
  bool descending;
  std::int32_t* to;
  std::int64_t step;
};

// SparseKernels::rows sites and some vectors of lanes:
//   out[i][lane] = start[lane] + sum over taps and depth d of in[neighbour][d] w[tap][d, lane]
// A tap that none of the sites has is skipped.
struct SparseTileTask {
  const float* in;  // [sites there, depth]
  std::int64_t depth;
  const float* zeros;              // [depth]: the row of a neighbour that is not there
  const std::int32_t* neighbours;  // [taps, step], of the first site of the tile on
  std::int64_t step;
  int taps;
  const float* w;      // [taps, depth, vectors of lanes]
  int vectors;         // at most SparseKernels::vectors
  int lanes;           // that are written: the last vector may be a part
  const float* start;  // [vectors of lanes], or null
  float* const* out;   // a row for each site of the tile
};

// to[c][lane] += sum over pairs of x[there][c] dy[here][lane], for all c < C and lanes < K.
struct SparseWeightTask {
  const float* x;   // [n, C]
  const float* dy;  // [m, K]
  std::int64_t c, k;
  const std::int32_t *there, *here;
  int pairs;
  float* to;  // [C, to_step], to_step: K in whole vectors
  std::int64_t to_step;
};

struct SparseKernels {
  int rows = 0;     // of a tile
  int vectors = 0;  // of a tile, at most
  int lanes = 0;    // of a vector
  void (*spread)(const SparseSpreadTask& task) = nullptr;
  void (*tile)(const SparseTileTask& task) = nullptr;
  void (*weights)(const SparseWeightTask& task) = nullptr;
};
inline constexpr int kMostSparseRows = 8;
extern IsaTable<SparseKernels> sparse_kernels;

}  // namespace convscope
