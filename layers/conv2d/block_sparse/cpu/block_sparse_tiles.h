// SPDX-License-Identifier: Apache-2.0
// block_sparse_tiles.h: the interface of the register tiles of block_sparse, which are compiled for
// each instruction set.
//
// An entry is 16 weights: those of 16 neighbouring output channels for one (c,r,s). Entries of one
// tap (r,s) are neighbours in the list, and taps of one s are neighbours, too.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

inline constexpr int kSparseRows = 7;  // most rows of a tile: 1, 2, 3, 4 or 7

// A run is a range of neighbouring taps that are inside the image for the same pixels of a tile.
// Its entries are those from segment[begin] to segment[end].
struct SparseRun {
  std::int32_t begin, end;
  std::uint32_t pixels;  // bit i * columns + j is set if pixel j of row i is inside
};

// A tile of rows x columns pixels of `out`. Row i starts at in[i] and out[i]. Neighbouring pixels
// are in_step and out_step floats apart. Rows may belong to different images.
struct SparseTile {
  int rows = 1, columns = 0;
  const float* in[kSparseRows] = {};
  float* out[kSparseRows] = {};
  std::int64_t in_step = 16, out_step = 16;
  const SparseRun* run = nullptr;
  int runs = 0;
};

// The entries [begin, end) of a list. In the first part of a list (`first`) the accumulators are
// initialised with SparseEpilogue::start, in later parts they are loaded from `out`. In the last
// part (`last`) the epilogue is applied. The kernel may load the entry after the end of the list.
struct SparsePart {
  const std::int32_t* segment = nullptr;
  const std::int32_t* offset = nullptr;  // [entries] floats from in[i] to pixel 0's input
  const float* value = nullptr;          // [entries, 16]
  std::int32_t begin = 0, end = 0;
  bool first = true, last = true;
};

struct SparseEpilogue {
  const float* start = nullptr;     // [16], or null: 0
  const float* residual = nullptr;  // residual of the element `y`, or null
  const float* y = nullptr;         // the first element of the whole output
  bool relu = false;
  float most = 0;  // upper bound of relu; infinity: none
};

struct BlockSparseKernels {
  int pixels = 0;      // largest tile of sum_channels
  int dot_pixels = 0;  // largest tile of dot_channel
  int lanes = 0;       // of a vector
  // forward: computes out[j][k] = start[k] + sum over entries e of value[e][k] * in[offset[e] + j],
  // then adds the residual and applies ReLU.
  void (*sum_channels)(const SparseTile& tile, const SparsePart& part,
                       const SparseEpilogue& epilogue) = nullptr;
  // backward_data: multiplies entries by pixels for one channel of dx:
  //   sums[j * lanes + l] =
  //       sum over e and k with k % lanes == l of value[e][k] * in[offset[e] + j + k]
  // `out` is not written. dot_channels computes `channels` channels of dx in one call; the list of
  // each channel has `taps` segments.
  void (*dot_channel)(const SparseTile& tile, const SparsePart& part, float* sums) = nullptr;
  void (*dot_channels)(const SparseTile& tile, const SparsePart& part, int channels, int taps,
                       float* sums) = nullptr;
  // Adds up the lanes of 16 channels c:
  //   out[j][c] = sum over l of sums[(c * dot_pixels + j) * lanes + l].
  void (*fold)(const SparseTile& tile, const float* sums) = nullptr;
};

extern IsaTable<BlockSparseKernels> block_sparse_kernels;

}  // namespace convscope
