// SPDX-License-Identifier: Apache-2.0
// int8_block_sparse_int8_simd.cpp: register tiles of convolution on integers with block-sparse
// weights; int8_block_sparse_cpu.cpp combines them into a convolution.
//
// Choices    The weights of an entry, 16 channels x 4 bytes, are loaded once and multiplied with
//            all pixels of the tile. AVX-512 with VNNI: 28 pixels take 28 accumulators + 1 register
//            of weights + 1 of x, of 32. AVX2 with VNNI: 6 pixels x 2 vectors + 2 + 1, of 16.
//            Without VNNI x and weights take two registers each: tiles of 24 pixels, and of 4 x 2.
// GCC 12 keeps an array on the stack if a loop that is not unrolled indexes it. So every loop over
// accumulators has an unroll pragma.
// Read next  int8_sparse_tiles.h; int8_tiles_int8_simd.cpp, the same with all weights
#include "layers/conv2d/int8/shared/cpu/int8_sparse_tiles.h"
#include "layers/conv2d/int8/shared/cpu/int8_tile_stores.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kVectors = kBlock / kLanes;  // vectors of an entry
constexpr int kPixels = kManyRegisters ? (kSpread ? 24 : 28)
                        : kLanes < 8   ? 1  // an entry has four or more vectors of accumulators
                                       : (kSpread ? 4 : 6);

struct Range {
  Index begin, end;
};

// Adds the products of the entries in `range` for pixels [First, End). Unless All is true, skips
// the pixels outside of [first, end).
template <int First, int End, bool All, int Pixels>
CONVSCOPE_INLINE void add_entries(const std::uint8_t* in, Index step, const Int8Entries& entries,
                                  Range range, int first, int end, Ints (&sums)[Pixels][kVectors]) {
  const std::int8_t* w = entries.w + range.begin * kBlock * kWeightBytes;
#pragma GCC unroll 1
  for (Index e = range.begin; e < range.end; ++e, w += kBlock * kWeightBytes) {
    WeightQuad weights[kVectors];
#pragma GCC unroll 16
    for (int v = 0; v < kVectors; ++v) weights[v] = load_weights(w + v * kLanes * kWeightBytes);
    // An instruction can address `base` plus 0, 1 or 2 steps, so `base` moves every three pixels.
    const std::uint8_t* base = in + entries.offset[e];
#pragma GCC unroll 28
    for (int j = 0; j < End; ++j) {
      if (j > 0 && j % 3 == 0) base += 3 * step;
      if (j < First || (!All && (j < first || j >= end))) continue;
      const Quad value = broadcast_quad(base + j % 3 * step);
#pragma GCC unroll 16
      for (int v = 0; v < kVectors; ++v) sums[j][v] = dot(sums[j][v], value, weights[v]);
    }
  }
}

// Taps that reach beyond the border of the image by at most one pixel, as in a 3x3 kernel, have
// pixel ranges that are known at compile time.
template <int Pixels>
void run(const Int8Tiles& tiles, const Int8Tile& tile, const Int8Entries& entries) {
  Ints sums[Pixels][kVectors];
#pragma GCC unroll 16
  for (int v = 0; v < kVectors; ++v) {
    const Ints start = load_ints(tiles.start + v * kLanes);
#pragma GCC unroll 28
    for (int j = 0; j < Pixels; ++j) sums[j][v] = start;
  }
  prefetch_lines<Pixels, kVectors>(tiles, tile);
  const Index step = tiles.in_step;
  for (int t = 0; t < tile.taps; ++t) {
    const Int8Tap& at = tile.tap[t];
    const std::uint8_t* const in = tile.in + at.in;
    const Range range{entries.segment[at.w], entries.segment[at.w + 1]};
    if (at.first == 0 && at.end == Pixels) {
      add_entries<0, Pixels, true>(in, step, entries, range, 0, Pixels, sums);
    } else if (Pixels > 1 && at.first == 1 && at.end == Pixels) {
      add_entries<Pixels == 1 ? 0 : 1, Pixels, true>(in, step, entries, range, 1, Pixels, sums);
    } else if (Pixels > 1 && at.first == 0 && at.end == Pixels - 1) {
      add_entries<0, Pixels - 1, true>(in, step, entries, range, 0, Pixels - 1, sums);
    } else {
      add_entries<0, Pixels, false>(in, step, entries, range, at.first, at.end, sums);
    }
  }
  store_sums(tiles, tile, sums);
}

using Run = void (*)(const Int8Tiles&, const Int8Tile&, const Int8Entries&);

template <int Pixels>
constexpr Run run_of() {
  if constexpr (Pixels <= kPixels) return run<Pixels>;
  return nullptr;
}
constexpr Run kRuns[28] = {run_of<1>(),  run_of<2>(),  run_of<3>(),  run_of<4>(),  run_of<5>(),
                           run_of<6>(),  run_of<7>(),  run_of<8>(),  run_of<9>(),  run_of<10>(),
                           run_of<11>(), run_of<12>(), run_of<13>(), run_of<14>(), run_of<15>(),
                           run_of<16>(), run_of<17>(), run_of<18>(), run_of<19>(), run_of<20>(),
                           run_of<21>(), run_of<22>(), run_of<23>(), run_of<24>(), run_of<25>(),
                           run_of<26>(), run_of<27>(), run_of<28>()};

void tile(const Int8Tiles& tiles, const Int8Tile& tile, const Int8Entries& entries) {
  kRuns[tile.pixels - 1](tiles, tile, entries);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(int8_sparse_kernels, (Int8SparseKernels{.pixels = CONVSCOPE_ISA::kPixels,
                                                               .tile = CONVSCOPE_ISA::tile}))
