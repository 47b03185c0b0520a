// SPDX-License-Identifier: Apache-2.0
// sparse_kernels.h: the parts of sparse convolution on the CPU that depend on the instruction set:
// lists of pairs from a map's entries, and the sums over pairs of a tap for outputs and for dw.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Lists the pairs of each tap of one row of a SparseTable (map.h), for `count` sites from
// `first_site`:
//   for each i < count that has a neighbour at tap s:
//     here[s step + pairs[s]] = first_site + i, there[...] = the neighbour, ++pairs[s]
// Up to kSparseSlack elements after the last pair of a tap may be overwritten.
struct SparseListTask {
  const std::uint32_t* entries;  // of the first site
  int count;                     // at most kMaxSparseSites
  int run;                       // taps of the row
  bool descending;
  std::int32_t first_site;
  std::int32_t *there, *here;
  std::int64_t step;
  int* pairs;  // [run], assigned
};
inline constexpr int kMaxSparseSites = 512;
inline constexpr int kSparseSlack = 16;
inline constexpr int kMaxRun = 7;

// Adds the pairs of one tap to some vectors of lanes:
//   out[here][lane] += sum over d < depth of in[there][d] w[d, lane]
struct SparsePairsTask {
  const float* in;  // [sites there, depth]
  std::int64_t depth;
  const std::int32_t *there, *here;
  int pairs;
  const float* w;  // [depth, vectors of lanes]
  int vectors;     // at most SparseKernels::vectors
  int lanes;       // used ones: the last vector may be partial
  float* out;      // [sites here, out_step], of the first of these lanes
  std::int64_t out_step;
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
  int vectors = 0;  // of a tile, at most
  int lanes = 0;    // of a vector
  void (*list)(const SparseListTask& task) = nullptr;
  void (*pairs)(const SparsePairsTask& task) = nullptr;
  void (*weights)(const SparseWeightTask& task) = nullptr;
};
extern IsaTable<SparseKernels> sparse_kernels;

}  // namespace convscope
