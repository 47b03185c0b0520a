// SPDX-License-Identifier: Apache-2.0
// halo_table.h: the map of a submanifold convolution (map.h), cut into tiles of sites that are
// close together. The file has no CUDA code.
//
// Consecutive sites in the order of a Z curve (Morton) form a compact part of the cloud. On a
// surface, 256 such sites and all their neighbours are about 400 different sites, instead of 256 x
// 13. Each tile has the list of these sites, its halo, and the entries of map.h as positions in
// this list:
//
//   list      the sites of the tile's halo, ascending: 29 bits for the site, above them its turn
//   entries   [rows of taps, 256] of 16 bits: [index of the first site in the list | bits], as in
//             map.h; neighbours in the map are neighbours in the list, because the list is sorted
//
// Entries and list together take 4 bytes for each entry: 36 bytes for each site with 3x3x3, as much
// as the entries of map.h. A tile has four units of 64 slots (positions of sites in the tile). The
// tensor cores multiply one unit at a time. Slots are sorted by the mask of their taps and cut into
// units, so that a unit needs few taps. Inside a unit, slots are ordered along the curve.
//
// The turn is the number of the group of memory banks, out of 8, at which a row of shared memory
// begins. The turn is linear in the coordinates, (w + 4 h + 2 t) mod 8, so the turn of a neighbour
// is the turn of the site plus the turn of the tap. Eight consecutive sites of the curve are read
// together, and they mostly have eight different turns.
//
// A halo of more than kHaloRows sites is cut into 2 or 4 phases, each with a list. Units are then
// consecutive sites of the curve. If 4 phases do not suffice (a full grid with a wide dilation),
// the tile is "scattered": its record has the entries of map.h, and each phase has 16 slots.
//
// Source: G. Morton 1966, A Computer Oriented Geodetic Data Base (the order along a Z curve)
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "layers/sparse_conv/problem.h"

namespace convscope::sparse_cuda {

inline constexpr int kHaloSlots = 256;  // of a tile
inline constexpr int kHaloUnit = 64;    // slots that a warp group multiplies together
inline constexpr int kHaloUnits = kHaloSlots / kHaloUnit;
inline constexpr int kHaloRows = 640;           // of a phase: the rows in shared memory
inline constexpr int kHaloPhases = kHaloUnits;  // with a list each
inline constexpr int kScatteredSlots = 16;      // of a phase without one
inline constexpr int kHaloTaps = 32;            // of a mask
inline constexpr int kHaloRun = 5;              // bits for taps; 11 bits hold a position
inline constexpr int kHaloHeadWords = 8;
inline constexpr int kTurnShift = 29;  // of a word of a list
static_assert(kHaloTaps * kScatteredSlots <= kHaloRows);

// Returns (w + 4 h + 2 t) mod 8 for coordinates or for a difference of coordinates.
constexpr int turn_of(std::int64_t t, std::int64_t h, std::int64_t w) {
  return static_cast<int>((w + 4 * h + 2 * t) & 7);
}

struct HaloTable {
  std::int64_t sites = 0, tiles = 0;
  int taps = 0, run = 1, rows = 0;  // of entries
  Tensor records;                   // i32 [tiles, rows, 256]
  Tensor heads;  // i32 [tiles, 8]: number of phases (0: scattered), then lengths of lists
  Tensor masks;  // i32 [tiles, 16]: the taps of each group
  Tensor pairs;  // i32 [2]: 64 bits

  std::size_t bytes() const;
};

// Returns "" if the tables of the kernel fit, otherwise the reason why not.
std::string halo_refusal(const SparseMap& map);

// Returns the table, made on the current GPU at the first call and kept by the map. Does not wait.
std::shared_ptr<const HaloTable> halo_table(const SparseMap& map);

// Work of the tiles, known on the host.
struct HaloFacts {
  double useful = 0;                      // pairs
  double executed = 0;                    // products of a slot and a tap, counted for whole units
  double rows = 0;                        // rows that tiles load, in all phases
  double taps = 0;                        // whose weights tiles load, in all phases
  std::int64_t tiles = 0, scattered = 0;  // without lists
};
// Returns the amount of work of the tiles; the first call waits for the GPU.
std::shared_ptr<const HaloFacts> halo_facts(const SparseMap& map);

}  // namespace convscope::sparse_cuda
