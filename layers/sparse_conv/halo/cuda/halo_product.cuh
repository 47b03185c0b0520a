// SPDX-License-Identifier: Apache-2.0
// halo_product.cuh: sums over the neighbours of a tile of 256 sites. Each neighbour is loaded into
// shared memory only once.
//
//   out[site, lane] = sum over taps, d < depth of in[neighbour(site, tap), d] w[tap][d, lane]
//
// A thread block computes a tile and up to 64 lanes. Each warp group of the block has one or two
// units of 64 slots (positions of sites in the tile). For each phase of the tile (halo_table.h),
// asynchronous copies load the rows of the halo. The warps then loop over steps of 64 elements of
// the K dimension (tap, channel). A ring of stages holds the weights of these steps. While the
// tensor cores multiply one unit, the warps load the rows of neighbours for the other unit into
// registers. Row 0 in shared memory is zeros and replaces a missing neighbour.
// Read next  halo_table.h; framework/cuda/tensor_cores/gathered_tile.cuh
#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/cuda/async_copy.cuh"
#include "framework/cuda/tensor_cores/gathered_tile.cuh"
#include "layers/sparse_conv/halo/cuda/halo_table.h"
#include "layers/sparse_conv/shared/cuda/tile_products.cuh"

namespace convscope::sparse_cuda {

struct HaloArgs {
  const unsigned* records = nullptr;
  const int* heads = nullptr;
  const unsigned* masks = nullptr;
  int taps = 0, run = 1, rows = 0;  // of entries
  int size[3] = {}, dilation[3] = {};
  const uint4* in = nullptr;  // [planes][sites][pieces]
  std::int64_t in_plane = 0;
  const uint4* w = nullptr;  // [planes][tiles of lanes][steps][columns][8 pieces], as in a stage
  std::int64_t w_plane = 0;
  int pieces = 0;  // of in
  SumsTarget target;
};

// kTerms is as in half_steps.cuh. kDepth is 16, 32 or 64, the number of channels of a tap, rounded
// up.
template <class Half_, int kTerms_, int kDepth_, int kColumns_>
struct HaloVariant {
  using Half = Half_;
  static constexpr int kTerms = kTerms_;
  static constexpr int kPlanes = kTerms == 3 ? 2 : 1;
  static constexpr int kDepth = kDepth_;
  static constexpr int kColumns = kColumns_;
  // The number of units of a warp group, and the least number of blocks on an SM. Registers limit
  // both numbers: with three terms each unit needs two operands and two accumulators.
  static constexpr int kUnits = kTerms == 1 && kColumns == 32 ? 1 : 2;
  static constexpr int kBlocks = kTerms == 3 ? 1 : 2;
  static constexpr int kThreads = 128 * kHaloUnits / kUnits;
  // One stage is multiplied while the next two are loaded.
  static constexpr int kStages = 3;
  static constexpr int kColumnsBytes = kColumns * kTileRowBytes;
  static constexpr int kStageBytes = kPlanes * kColumnsBytes;
  static constexpr int kTaps = kTileDepth / kDepth;                  // of a step
  static constexpr int kPieces = kDepth / half_tiles::kPieceElements;  // of a row in shared memory
  static constexpr int kRowBytes = kDepth * 2;
  static constexpr int kRowsPlane = (kHaloRows + 1) * kRowBytes;
  static constexpr int kStoreBytes = 16 * (kColumns * 4 + 16);  // of a warp, see store_rows
  // The entries are stored after the rows and after the results, which reuse the memory of the
  // rows.
  static constexpr int kEntriesAt =
      std::max(kStages * kStageBytes + kPlanes * kRowsPlane, kThreads / 32 * kStoreBytes);

  // The last term is for alignment.
  static constexpr int shared_bytes(int entry_rows) {
    return kEntriesAt + entry_rows * kHaloSlots * 2 + 1024;
  }
  // Returns the position of a piece of a row of the halo.
  static constexpr int place(int row, int piece, int turn) {
    return row * kRowBytes + ((piece ^ (turn & (kPieces - 1))) << 4);
  }
};

// What a thread block knows about its tile.
struct HaloTile {
  const unsigned* record;
  const unsigned* lists;
  const int* head;
  bool scattered;
  int phases, slots;  // slots: of a phase

  __device__ HaloTile(const HaloArgs& z, int tile)
      : record(z.records + static_cast<std::int64_t>(tile) * z.rows * kHaloSlots),
        lists(record + z.rows * kHaloSlots / 2),
        head(z.heads + tile * kHaloHeadWords),
        scattered(head[0] == 0),
        phases(scattered ? kHaloSlots / kScatteredSlots : head[0]),
        slots(kHaloSlots / phases) {}
};

// One kernel tap: the start of its row of entries, its bit, and the turn (halo_table.h) of its
// neighbours relative to the turn of their site.
struct alignas(16) HaloTap {
  int entries;
  unsigned bit;
  int turn, unused;

  __device__ static HaloTap make(const HaloArgs& z, int tap) {
    const int row = tap / z.run;
    return {row * kHaloSlots, 1u << (tap - row * z.run),
            turn_of((tap / z.size[2] / z.size[1] - z.size[0] / 2) * z.dilation[0],
                    (tap / z.size[2] % z.size[1] - z.size[1] / 2) * z.dilation[1],
                    (tap % z.size[2] - z.size[2] / 2) * z.dilation[2]),
            0};
  }
  // Returns the neighbour of an entry at this tap, or -1.
  __device__ int of(unsigned entry, int run) const {
    return (entry & bit) == 0 ? -1 : static_cast<int>(entry >> run) + __popc(entry & (bit - 1));
  }
};

// Returns the list entry of the site at a slot; ~0 if there is none. The site is its own neighbour
// at the centre tap.
__device__ inline unsigned own_word(const HaloArgs& z, const HaloTile& tile, int slot) {
  const HaloTap centre = HaloTap::make(z, (z.taps - 1) / 2);
  const int at = centre.entries + slot;
  if (tile.scattered) return static_cast<unsigned>(centre.of(tile.record[at], z.run));
  const int place = centre.of(reinterpret_cast<const unsigned short*>(tile.record)[at], z.run);
  if (place < 0) return ~0u;
  const unsigned* list = tile.lists;
  for (int phase = 0; phase < slot / tile.slots; ++phase) list += tile.head[1 + phase];
  return list[place];
}

// Copies the rows of a phase into shared memory, after row 0. A scattered tile has no list of
// sites: each neighbour of each slot has a separate row. The function numbers these rows by (row of
// entries, slot, index of the neighbour) and writes the numbers into the entries.
template <class V>
__device__ inline int load_halo(const HaloArgs& z, const HaloTile& tile, int phase,
                                const unsigned* site_list, unsigned char* rows,
                                unsigned short* entries) {
  const auto thread = static_cast<int>(threadIdx.x);
  const int first_slot = phase * tile.slots;
  if (tile.scattered) {
    for (int i = thread; i < z.rows * kHaloSlots; i += V::kThreads) {
      const int slot = i % kHaloSlots - first_slot;
      const bool mine = slot >= 0 && slot < kScatteredSlots;
      const int first = (i / kHaloSlots * kScatteredSlots + slot) * z.run;
      const unsigned bits = tile.record[i] & ((1u << z.run) - 1);
      entries[i] = mine && bits != 0
                       ? static_cast<unsigned short>(static_cast<unsigned>(first) << z.run | bits)
                       : static_cast<unsigned short>(0);
    }
  }
  const int count = tile.scattered ? z.rows * kScatteredSlots * z.run : tile.head[1 + phase];
  for (int i = thread; i < count * V::kPieces; i += V::kThreads) {
    const int row = i / V::kPieces;
    const int piece = i % V::kPieces;
    int site = -1;
    int turn = 0;
    if (tile.scattered) {
      const int line = row / z.run;
      const unsigned entry =
          tile.record[line / kScatteredSlots * kHaloSlots + first_slot + line % kScatteredSlots];
      const int which = row - line * z.run;
      if (which < __popc(entry & ((1u << z.run) - 1))) {
        site = static_cast<int>(entry >> z.run) + which;
      }
    } else {
      const unsigned word = site_list[row];
      site = static_cast<int>(word & ((1u << kTurnShift) - 1));
      turn = static_cast<int>(word >> kTurnShift);
    }
    const bool has = site >= 0 && piece < z.pieces;
    const uint4* const from = z.in + (has ? static_cast<std::int64_t>(site) * z.pieces + piece : 0);
#pragma unroll
    for (int plane = 0; plane < V::kPlanes; ++plane) {
      async_copy<16, false>(rows + plane * V::kRowsPlane + V::place(row + 1, piece, turn),
                            from + plane * z.in_plane, has);
    }
  }
  return count;
}

// Stores the accumulators of the 16 sites of a warp. Lane l passes the site of row l % 16 (-1:
// none). The accumulators go through the buffer `room` in shared memory, so that rows are written
// in units of 16 bytes.
template <class V, class Out>
__device__ inline void store_rows(const SumsTarget& z, const float (&sums)[V::kColumns / 2],
                                  int site, int first_lane, unsigned char* room) {
  constexpr int kRowBytes = V::kColumns * static_cast<int>(sizeof(Out)) + 16;  // no bank conflicts
  constexpr int kPieces = V::kColumns * static_cast<int>(sizeof(Out)) / 16;
  static_assert(16 * kRowBytes <= V::kStoreBytes);
  const auto lane = static_cast<int>(threadIdx.x % 32);
  const float2 scale = z.unscale != nullptr ? *z.unscale : make_float2(1, 1);
  const auto* const bias = static_cast<const Out*>(z.bias);
  const int lanes = min(z.lanes - first_lane, V::kColumns);
#pragma unroll
  for (int j = 0; j < V::kColumns / 8; ++j) {
    const int k = 8 * j + 2 * (lane % 4);
    float add[2] = {};
    if (bias != nullptr) {
#pragma unroll
      for (int e = 0; e < 2; ++e) add[e] = k + e < lanes ? to_float(bias[first_lane + k + e]) : 0;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      auto* const to = reinterpret_cast<Out*>(room + (lane / 4 + 8 * i) * kRowBytes) + k;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        to[e] = from_float<Out>(sums[4 * j + 2 * i + e] * scale.x * scale.y + add[e]);
      }
    }
  }
  __syncwarp();
  Out* const out = static_cast<Out*>(z.out) + first_lane;
  if (z.lanes * static_cast<int>(sizeof(Out)) % 16 == 0 &&
      reinterpret_cast<std::uintptr_t>(z.out) % 16 == 0) {
#pragma unroll
    for (int i = lane; i < 16 * kPieces; i += 32) {
      const int to = __shfl_sync(kAllLanes, site, i / kPieces);
      constexpr int kElements = 16 / static_cast<int>(sizeof(Out));
      const int k = i % kPieces * kElements;
      if (to < 0 || k >= lanes) continue;
      *reinterpret_cast<uint4*>(out + static_cast<std::int64_t>(to) * z.lanes + k) =
          *reinterpret_cast<const uint4*>(room + i / kPieces * kRowBytes + i % kPieces * 16);
    }
  } else {
    for (int row = 0; row < 16; ++row) {
      const int to = __shfl_sync(kAllLanes, site, row);
      const auto* const from = reinterpret_cast<const Out*>(room + row * kRowBytes);
      for (int k = lane; to >= 0 && k < lanes; k += 32) {
        out[static_cast<std::int64_t>(to) * z.lanes + k] = from[k];
      }
    }
  }
  __syncwarp();
}

template <class V>
__global__ __launch_bounds__(V::kThreads,
                             V::kBlocks) void halo_kernel(const __grid_constant__ HaloArgs z) {
  using Half = typename V::Half;
  constexpr int kTaps = V::kTaps;
  __shared__ unsigned masks[kHaloUnits];
  __shared__ HaloTap tap_table[kHaloTaps + kTaps];  // all taps, then empty entries
  // The taps of each step of the phase, followed by the taps of one empty step. The loop reads one
  // step ahead, so it reads the empty step, but does not use it.
  __shared__ HaloTap list[kHaloTaps + 2 * kTaps];
  __shared__ int weights_at[kHaloTaps];
  __shared__ std::uint64_t arrivals[V::kStages];
  unsigned char* const stages = aligned_shared();
  unsigned char* const rows = stages + V::kStages * V::kStageBytes;
  auto* const entries = reinterpret_cast<unsigned short*>(stages + V::kEntriesAt);
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int first_lane = static_cast<int>(blockIdx.y) * V::kColumns;

  let_next_kernel_start();
  wait_for_previous_kernel();
  const auto tile_index = static_cast<int>(blockIdx.x);
  const HaloTile tile(z, tile_index);
  if (thread < kHaloUnits) masks[thread] = z.masks[tile_index * kHaloUnits + thread];
  if (thread < kHaloTaps + kTaps) {
    tap_table[thread] = thread < z.taps ? HaloTap::make(z, thread) : HaloTap{};
    if (tile.scattered) tap_table[thread].turn = 0;
  }
  if (kBulkCopies && thread == 0) {
    for (std::uint64_t& barrier : arrivals) start_barrier(&barrier);
  }
  if (!tile.scattered) {
    for (int i = thread; i < z.rows * kHaloSlots / 8; i += V::kThreads) {
      async_copy<16, false>(entries + i * 8, tile.record + i * 4);
    }
  }
  for (int i = thread; i < V::kPlanes * V::kPieces; i += V::kThreads) {
    *reinterpret_cast<uint4*>(rows + i / V::kPieces * V::kRowsPlane +
                              V::place(0, i % V::kPieces, 0)) = uint4{};
  }

  // Each thread loads the rows of one slot in each unit of its warp group.
  int slot[V::kUnits];
  int own_turn[V::kUnits];
#pragma unroll
  for (int m = 0; m < V::kUnits; ++m) {
    slot[m] = (thread / 128 * V::kUnits + m) * kHaloUnit + thread % 128 / 32 * 16 + lane % 16;
    own_turn[m] = tile.scattered ? 0 : static_cast<int>(own_word(z, tile, slot[m]) >> kTurnShift);
  }
  const int all_steps = ceil_div(z.taps, kTaps);
  const uint4* const weights =
      z.w + static_cast<std::int64_t>(blockIdx.y) * all_steps * (V::kColumnsBytes / 16);
  __syncthreads();

  float sums[V::kUnits][V::kColumns / 2];
  float fresh[V::kUnits][V::kTerms == 3 ? V::kColumns / 2 : 1];
#pragma unroll
  for (int m = 0; m < V::kUnits; ++m) {
#pragma unroll
    for (float& v : sums[m]) v = 0;
#pragma unroll
    for (float& v : fresh[m]) v = 0;
  }
  gathered_tile::Rows<Half> factor[V::kUnits][V::kPlanes];

  const unsigned* site_list = tile.lists;
  int loaded = 0;  // steps of earlier phases
  for (int phase = 0; phase < tile.phases; ++phase) {
    const int first_slot = phase * tile.slots;
    unsigned all = 0;          // taps
    unsigned mine = 0;         // of this warp group
    unsigned seen[V::kUnits];  // ~0 if the slot is in this phase, otherwise 0
#pragma unroll
    for (int unit = 0; unit < kHaloUnits; ++unit) {
      const bool in_phase =
          unit * kHaloUnit < first_slot + tile.slots && (unit + 1) * kHaloUnit > first_slot;
      if (in_phase) all |= masks[unit];
      if (in_phase && unit / V::kUnits == thread / 128) mine |= masks[unit];
    }
#pragma unroll
    for (int m = 0; m < V::kUnits; ++m) {
      seen[m] = slot[m] >= first_slot && slot[m] < first_slot + tile.slots ? ~0u : 0;
    }
    if (phase > 0) __syncthreads();  // all reads of the previous phase's rows are done
    // `steps` counts the steps that have a tap of the phase. `needed` marks those that this warp
    // group multiplies.
    unsigned needed = 0;
    int steps = 0;
    for (int step = 0; step < all_steps; ++step) {
      const unsigned its = ((1u << (kTaps - 1) << 1) - 1) << step * kTaps;
      if ((all & its) == 0) continue;
      if (thread < kTaps) list[steps * kTaps + thread] = tap_table[step * kTaps + thread];
      if (thread == 0) weights_at[steps] = step * (V::kColumnsBytes / 16);
      if ((mine & its) != 0) needed |= 1u << steps;
      ++steps;
    }
    if (thread < kTaps) list[steps * kTaps + thread] = HaloTap{};
    const int count = load_halo<V>(z, tile, phase, site_list, rows, entries);
    if (!tile.scattered) site_list += count;
    __syncthreads();  // the list of steps

    // Loads the weights of the next step in the list. With bulk copies one thread loads all of
    // them, otherwise each thread loads a part.
    const auto load_weights = [&](int step) {
      const int at = (loaded + step) % V::kStages;
      unsigned char* const stage = stages + at * V::kStageBytes;
      const uint4* const from = weights + weights_at[step];
      if constexpr (kBulkCopies) {
        if (thread == 0) {
          expect_bytes(arrivals + at, V::kStageBytes);
#pragma unroll
          for (int plane = 0; plane < V::kPlanes; ++plane) {
            bulk_copy(stage + plane * V::kColumnsBytes, from + plane * z.w_plane, V::kColumnsBytes,
                      arrivals + at);
          }
        }
      } else {
        for (int i = thread; i < V::kColumnsBytes / 16; i += V::kThreads) {
#pragma unroll
          for (int plane = 0; plane < V::kPlanes; ++plane) {
            async_copy<16>(stage + plane * V::kColumnsBytes + i * 16, from + plane * z.w_plane + i);
          }
        }
      }
    };
    // Loads the rows of unit m into registers.
    const auto load_rows = [&](int step, int m) {
      int from[4];
#pragma unroll
      for (int j = 0; j < kTaps; ++j) {
        const HaloTap tap = list[step * kTaps + j];
        const int row = 1 + tap.of(entries[tap.entries + slot[m]] & seen[m], z.run);
        const int turn = own_turn[m] + tap.turn;
#pragma unroll
        for (int k = 0; k < 4 / kTaps; ++k) {
          from[j * (4 / kTaps) + k] = V::place(row, 2 * k + lane / 16, turn);
        }
      }
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        factor[m][plane].load(rows + plane * V::kRowsPlane, from);
      }
    };

    constexpr int kAhead = V::kStages - 1;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < steps) load_weights(i);
      async_copy_commit();
    }
    async_copy_wait<kAhead - 1>();
    __syncthreads();  // the rows have arrived
    load_rows(0, 0);
    for (int step = 0; step < steps; ++step) {
      const int at = (loaded + step) % V::kStages;
      if constexpr (kBulkCopies) {
        wait_for_bytes(arrivals + at, static_cast<unsigned>((loaded + step) / V::kStages) & 1u);
      } else {
        async_copy_wait<kAhead - 1>();
        order_shared_writes_for_matrix_unit();
      }
      __syncthreads();  // the weights of the step are loaded; the next stage to fill is free
      if (step + kAhead < steps) load_weights(step + kAhead);
      async_copy_commit();
      const unsigned char* const columns = stages + at * V::kStageBytes;
      if ((needed >> step & 1) != 0) {
#pragma unroll
        for (int m = 0; m < V::kUnits; ++m) {
          if (m > 0) load_rows(step, m);
          matrix_tile::begin();
          if constexpr (V::kTerms == 1) {
            matrix_tile::hold(sums[m]);
            gathered_tile::multiply<Half, V::kColumns>(sums[m], factor[m][0], columns, true);
          } else {
            matrix_tile::hold(fresh[m]);
            const unsigned char* const low = columns + V::kColumnsBytes;
            gathered_tile::multiply<Half, V::kColumns>(fresh[m], factor[m][1], columns, true);
            gathered_tile::multiply<Half, V::kColumns>(fresh[m], factor[m][0], low, true);
            gathered_tile::multiply<Half, V::kColumns>(fresh[m], factor[m][0], columns, true);
          }
          matrix_tile::commit();
        }
        matrix_tile::wait<V::kUnits - 1>();
      }
      load_rows(step + 1, 0);
      matrix_tile::wait<0>();
#pragma unroll
      for (int m = 0; m < V::kUnits; ++m) {
        matrix_tile::hold(sums[m]);
        matrix_tile::hold(fresh[m]);
      }
      if constexpr (V::kTerms == 3) {
        constexpr int kSteps = half_tiles::kStepsToPromotion;
        if (step % kSteps == kSteps - 1 || step == steps - 1) {
#pragma unroll
          for (int m = 0; m < V::kUnits; ++m) {
#pragma unroll
            for (int i = 0; i < V::kColumns / 2; ++i) {
              sums[m][i] += fresh[m][i];
              fresh[m][i] = 0;
            }
          }
        }
      }
    }
    loaded += steps;
  }

  unsigned char* const room = stages + thread / 32 * V::kStoreBytes;
  __syncthreads();  // all reads of rows and weights are done
#pragma unroll
  for (int m = 0; m < V::kUnits; ++m) {
    const unsigned word = own_word(z, tile, slot[m]);
    const int site = word == ~0u ? -1 : static_cast<int>(word & ((1u << kTurnShift) - 1));
    if (z.target.wide) {
      store_rows<V, float>(z.target, sums[m], site, first_lane, room);
    } else {
      store_rows<V, Half>(z.target, sums[m], site, first_lane, room);
    }
  }
}

}  // namespace convscope::sparse_cuda
