// SPDX-License-Identifier: Apache-2.0
// tile_table.h: the map of a sparse convolution (map.h) in the layout that kernels for tensor cores
// read. The file has no CUDA code.
//
// A product works on tiles of 64 to 256 sites. A tap costs time if at least one site of the tile
// has a neighbour at this tap, so sites with neighbours at the same taps should be in the same
// tile. Therefore the entries are sorted by the mask of the taps that have a neighbour. A position
// in this order is called a slot.
//
//   entries  [rows of taps, slots]   as in map.h, 32 bits each
//   words    [units, words]          of 64 slots: the taps at which at least one slot has a
//            neighbour
//   order    [slots]                 the site of a slot; -1 after the last one
//
// A submanifold table needs no `order`, because each site is its own neighbour at the centre tap.
// So with a 3x3x3 kernel the table takes 36 bytes for each site, plus 4 bytes for every 64 sites.
//
// Source: spconv 2 calls the sorted form implicit GEMM (Y. Yan et al.,
// github.com/traveller59/spconv); H. Tang et al.: TorchSparse++, MICRO 2023, arXiv 2311.12862
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layers/sparse_conv/problem.h"

namespace convscope::sparse_cuda {

inline constexpr int kUnit = 64;        // slots that share a word of taps
inline constexpr int kSlotsStep = 256;  // slots are whole tiles

// The taps of a table: all taps, or one half of them (split_mask). Each half has a separate order
// of slots.
enum class TapPart { all, first_half, second_half };

// The taps of a part, and the rows of taps that contain them.
struct PartTaps {
  int first = 0, end = 0;
  int first_row = 0, rows = 0;

  int count() const { return end - first; }
};
PartTaps taps_of(const SparseKernel& kernel, TapPart part);

struct TileTable {
  std::int64_t sites = 0, slots = 0;
  int taps = 0, run = 1;
  PartTaps part;
  int words = 1;    // of a unit: ceil(taps / 32)
  int centre = -1;  // the tap where a site is its own neighbour; -1: `order` is used
  bool descending = false;
  Tensor entries, unit_words, order;  // i32, on the GPU
  Tensor pairs;                       // i32 [2]: 64 bits, of the part

  std::size_t bytes() const;
  std::int64_t units() const { return slots / kUnit; }
};

// Returns the table, made on the current GPU at the first call and kept by the map. Does not wait.
std::shared_ptr<const TileTable> tile_table(const SparseMap& map, const SparseLook& look,
                                            TapPart part = TapPart::all);

// The taps of each unit, on the host. All counts below are in products of one site and one tap.
struct TileMasks {
  PartTaps part;
  int words = 1;
  std::vector<std::uint32_t> unit_words;  // [units, words]
  double useful = 0;                      // pairs

  // Counts the products of tiles of `units` units. A tile visits each tap at which one of its sites
  // has a neighbour.
  double executed_by_sums(int units) const;
  // Counts the products that tiles of `tile_pieces` columns execute. A column is a tap and 8
  // channels (a piece), and a tile visits each unit that has one of the tile's taps.
  double executed_by_weights(int tile_pieces, int pieces) const;
};
// Returns the masks; the first call waits for the GPU.
std::shared_ptr<const TileMasks> tile_masks(const SparseMap& map, const SparseLook& look,
                                            TapPart part = TapPart::all);

}  // namespace convscope::sparse_cuda
