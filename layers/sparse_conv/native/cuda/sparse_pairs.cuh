// SPDX-License-Identifier: Apache-2.0
// sparse_pairs.cuh: lists the pairs of each tap, and multiplies one tap after the other. One kernel
// for each tap gathers rows, multiplies them by the weights, and scatters the products.
//
//   lists     The pairs of tap t are at [t sites, t sites + count[t]), each as (site there, site
//             here), in the order of the table's slots. A list has each site here once, so adding
//             its products needs no atomics; the next tap's kernel starts after this one
//   sums      acc[here, lane] += in[there, :] w[t, :, lane]      acc f32
//   weights   dw[t, c, k] = sum over the list of x[there, c] dy[here, k]
// Read next  sparse_native_cuda.cu, which starts them
#pragma once

#include <cstdint>

#include "layers/conv2d/shared/cuda/half_steps.cuh"
#include "layers/sparse_conv/shared/cuda/tile_table.cuh"

namespace convscope::sparse_cuda {

struct PairLists {
  int* there = nullptr;   // [taps, sites]
  int* here = nullptr;    // [taps, sites]
  int* counts = nullptr;  // [taps]
  int* blocks = nullptr;  // [taps, blocks]: pairs of each block of slots, then where they begin
  int sites = 0, block_count = 0;
};

// Grid: x counts groups of kThreads slots, y counts taps. The first call counts the pairs of each
// block, the second call writes the pairs to the lists.
template <bool kFill>
__global__ __launch_bounds__(kThreads) void list_pairs_kernel(
    const __grid_constant__ TableView table, const __grid_constant__ PairLists z) {
  __shared__ int scratch[32];
  const auto tap = static_cast<int>(blockIdx.y);
  const auto slot = static_cast<int>(global_thread());
  const TapPlace place = tap_place(table, tap);
  int there = -1;
  if (slot < table.slots) {
    there = neighbour(
        table, table.entries[static_cast<std::int64_t>(place.row) * table.slots + slot], place);
  }
  const unsigned with = __ballot_sync(kAllLanes, there >= 0);
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = threadIdx.x / 32;
  if (lane == 0) scratch[warp] = __popc(with);
  __syncthreads();
  int before = 0;
  int all = 0;
  for (unsigned i = 0; i < kThreads / 32; ++i) {
    if (i < warp) before += scratch[i];
    all += scratch[i];
  }
  int* const block = z.blocks + static_cast<std::int64_t>(tap) * z.block_count + blockIdx.x;
  if constexpr (!kFill) {
    if (threadIdx.x == 0) *block = all;
  } else if (there >= 0) {
    const std::int64_t at = static_cast<std::int64_t>(tap) * z.sites + *block + before +
                            __popc(with & ((1u << lane) - 1));
    z.there[at] = there;
    if (table.order != nullptr) {
      z.here[at] = table.order[slot];
    } else {
      const TapPlace centre = tap_place(table, table.centre);
      z.here[at] = neighbour(
          table, table.entries[static_cast<std::int64_t>(centre.row) * table.slots + slot], centre);
    }
  }
}

// One block for each tap turns counts of blocks into the positions where they begin.
static __global__ __launch_bounds__(kThreads) void begin_pairs_kernel(
    const __grid_constant__ PairLists z) {
  __shared__ int scratch[32];
  int* const blocks = z.blocks + static_cast<std::int64_t>(blockIdx.x) * z.block_count;
  const auto thread = static_cast<int>(threadIdx.x);
  int begin = 0;
  for (int first = 0; first < z.block_count; first += static_cast<int>(kThreads)) {
    const int i = first + thread;
    const int own = i < z.block_count ? blocks[i] : 0;
    int sum = own;
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(offset));
      if (thread % 32 >= offset) sum += other;
    }
    __syncthreads();
    if (thread % 32 == 31) scratch[thread / 32] = sum;
    __syncthreads();
    int before = 0;
    int all = 0;
    for (int warp = 0; warp < static_cast<int>(kThreads) / 32; ++warp) {
      if (warp < thread / 32) before += scratch[warp];
      all += scratch[warp];
    }
    if (i < z.block_count) blocks[i] = begin + before + sum - own;
    begin += all;
  }
  if (thread == 0) z.counts[blockIdx.x] = begin;
}

// ---- products of one tap -----------------------------------------------------------------------

struct TapSums {
  const int *there = nullptr, *here = nullptr, *count = nullptr;  // of the tap
  const uint4* in = nullptr;                                      // [planes][sites there][pieces]
  std::int64_t in_plane = 0;
  const uint4* w = nullptr;  // [planes][lanes][pieces] of the tap
  std::int64_t w_plane = 0;
  int pieces = 0, lanes = 0;
  float* sums = nullptr;  // [sites here, lanes]
};

// Grid: x counts tiles of the list, y counts tiles of lanes.
template <class V>
__global__ __launch_bounds__(V::kThreads,
                             V::kBlocks) void tap_sums_kernel(const __grid_constant__ TapSums z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const int first_pair = static_cast<int>(blockIdx.x) * V::kTileRows;
  const int first_lane = static_cast<int>(blockIdx.y) * V::kTileColumns;
  const int pairs = min(*z.count - first_pair, V::kTileRows);
  if (pairs <= 0) return;
  unsigned char* const stages = aligned_shared();
  const int thread = static_cast<int>(threadIdx.x);
  const int piece = thread % 8;
  const int first = thread / 8;
  constexpr int kRowStep = V::kThreads / 8;
  constexpr int kRows = V::kTileRows / kRowStep;
  int there[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = first + i * kRowStep;
    there[i] = row < pairs ? z.there[first_pair + row] : -1;
  }
  const auto load = [&](int step, unsigned char* stage) {
    const int part = step * 8 + piece;
    const bool inside = part < z.pieces;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const bool has = inside && there[i] >= 0;
      const uint4* const from =
          z.in + (has ? static_cast<std::int64_t>(there[i]) * z.pieces + part : 0);
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(stage + plane * V::kRowsBytes + swizzle_tile(first + i * kRowStep, piece),
                       from + plane * z.in_plane, has);
      }
    }
    unsigned char* const to = stage + V::kPlanes * V::kRowsBytes;
    for (int column = first; column < V::kTileColumns; column += kRowStep) {
      const int lane = first_lane + column;
      const bool has = inside && lane < z.lanes;
      const uint4* const from = z.w + (has ? static_cast<std::int64_t>(lane) * z.pieces + part : 0);
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(to + plane * V::kColumnsBytes + swizzle_tile(column, piece),
                       from + plane * z.w_plane, has);
      }
    }
  };
  float sums[V::kSums];
  half_tiles::sum_steps<V, false>(sums, stages, ceil_div(z.pieces, 8), load);
  const int group = thread / 128;
  const int lane = thread % 32;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = group * 64 + thread % 128 / 32 * 16 + lane / 4 + 8 * i;
    if (row >= pairs) continue;
    float* const to = z.sums + static_cast<std::int64_t>(z.here[first_pair + row]) * z.lanes;
    // All loads come before the first store, because a load after a store to the same array would
    // wait for the store.
    if (z.lanes % 2 == 0) {
      float2 before[V::kColumns / 8];
#pragma unroll
      for (int j = 0; j < V::kColumns / 8; ++j) {
        const int k = first_lane + 8 * j + 2 * (lane % 4);
        if (k < z.lanes) before[j] = *reinterpret_cast<const float2*>(to + k);
      }
#pragma unroll
      for (int j = 0; j < V::kColumns / 8; ++j) {
        const int k = first_lane + 8 * j + 2 * (lane % 4);
        if (k < z.lanes) {
          *reinterpret_cast<float2*>(to + k) =
              make_float2(before[j].x + sums[4 * j + 2 * i], before[j].y + sums[4 * j + 2 * i + 1]);
        }
      }
      continue;
    }
#pragma unroll
    for (int j = 0; j < V::kColumns / 4; ++j) {
      const int k = first_lane + j / 2 * 8 + 2 * (lane % 4) + j % 2;
      if (k < z.lanes) to[k] += sums[j / 2 * 4 + 2 * i + j % 2];
    }
  }
}

struct TapWeights {
  PairLists lists;
  const uint4* x = nullptr;  // [planes][sites there][pieces]
  std::int64_t x_plane = 0;
  int pieces = 0;
  const uint4* dy = nullptr;  // [planes][sites here][dy_pieces]
  std::int64_t dy_plane = 0;
  int dy_pieces = 0, lanes = 0;
  int steps_of_split = 1;  // of 64 pairs
  int row_tiles = 1;       // of a tap
  float* parts = nullptr;  // [splits][rows][lanes]
  int rows = 0;            // taps x row tiles x kTileRows
};

// Grid: x counts all channel tiles of one tap, then those of the next; y counts tiles of lanes, z
// splits of the list.
template <class V>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void tap_weights_kernel(
    const __grid_constant__ TapWeights z) {
  static_assert(V::kColumnGroups == 1 && V::kColumns % 64 == 0 && V::kRowGroups == 1);
  constexpr int kRowStep = V::kThreads / 8;
  constexpr int kRows = kTileDepth / kRowStep;
  constexpr int kDyPieces = V::kColumns / 8;
  constexpr int kDyStep = V::kThreads / kDyPieces;
  constexpr int kDyRows = kTileDepth / kDyStep;
  let_next_kernel_start();
  wait_for_previous_kernel();
  unsigned char* const stages = aligned_shared();
  const int tap = static_cast<int>(blockIdx.x) / z.row_tiles;
  const int first_piece = static_cast<int>(blockIdx.x) % z.row_tiles * 8;
  const int first_lane = static_cast<int>(blockIdx.y) * V::kColumns;
  const int all_steps = ceil_div(z.lists.counts[tap], kTileDepth);
  const int first_step = static_cast<int>(blockIdx.z) * z.steps_of_split;
  if (first_step >= all_steps && blockIdx.z > 0) return;  // the sum skips unwritten parts
  const int steps = max(0, min(z.steps_of_split, all_steps - first_step));
  const int pairs = z.lists.counts[tap] - first_step * kTileDepth;
  const std::int64_t list =
      static_cast<std::int64_t>(tap) * z.lists.sites + first_step * kTileDepth;
  const int thread = static_cast<int>(threadIdx.x);
  const int piece = thread % 8;
  const int row = thread / 8;
  const int part = first_piece + piece;
  const int dy_piece = thread % kDyPieces;
  const int dy_row = thread / kDyPieces;
  const int dy_part = first_lane / 8 + dy_piece;
  int there[kRows];
  int here[kDyRows];
  const auto look_up = [&](int step) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int at = step * kTileDepth + row + i * kRowStep;
      there[i] = at < pairs && part < z.pieces ? z.lists.there[list + at] : -1;
    }
#pragma unroll
    for (int i = 0; i < kDyRows; ++i) {
      const int at = step * kTileDepth + dy_row + i * kDyStep;
      here[i] = at < pairs && dy_part < z.dy_pieces ? z.lists.here[list + at] : -1;
    }
  };
  if (steps > 0) look_up(0);
  const auto load = [&](int step, unsigned char* stage) {
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint4* const from =
          z.x + (there[i] >= 0 ? static_cast<std::int64_t>(there[i]) * z.pieces + part : 0);
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(stage + plane * V::kRowsBytes + swizzle_tile(row + i * kRowStep, piece),
                       from + plane * z.x_plane, there[i] >= 0);
      }
    }
    unsigned char* const to = stage + V::kPlanes * V::kRowsBytes + dy_piece / 8 * kTileBlockBytes;
#pragma unroll
    for (int i = 0; i < kDyRows; ++i) {
      const uint4* const from =
          z.dy + (here[i] >= 0 ? static_cast<std::int64_t>(here[i]) * z.dy_pieces + dy_part : 0);
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(
            to + plane * V::kColumnsBytes + swizzle_tile(dy_row + i * kDyStep, dy_piece % 8),
            from + plane * z.dy_plane, here[i] >= 0);
      }
    }
    if (step + 1 < steps) look_up(step + 1);
  };
  float sums[V::kSums];
  half_tiles::sum_steps<V, true>(sums, stages, steps, load);
  const int lane = thread % 32;
  const int out_row = (tap * z.row_tiles * 8 + first_piece) * 8 + thread / 32 * 16 + lane / 4;
  float* const parts = z.parts + static_cast<std::int64_t>(blockIdx.z) * z.rows * z.lanes;
#pragma unroll
  for (int i = 0; i < V::kSums; ++i) {
    const int k = first_lane + i / 4 * 8 + 2 * (lane % 4) + i % 2;
    if (k < z.lanes) {
      parts[static_cast<std::int64_t>(out_row + i / 2 % 2 * 8) * z.lanes + k] = sums[i];
    }
  }
}

struct FinishSums {
  const float* sums = nullptr;  // [sites, lanes]
  const float2* unscale = nullptr;
  const void* bias = nullptr;
  void* out = nullptr;
  std::int64_t count = 0;
  int lanes = 1;
};
template <class Out>
__global__ __launch_bounds__(kThreads) void finish_sums_kernel(
    const __grid_constant__ FinishSums z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float2 scale = z.unscale != nullptr ? *z.unscale : make_float2(1, 1);
  for (std::int64_t i = global_thread(); i < z.count; i += global_threads()) {
    float y = z.sums[i] * scale.x * scale.y;
    if (z.bias != nullptr) y += to_float(static_cast<const Out*>(z.bias)[i % z.lanes]);
    static_cast<Out*>(z.out)[i] = from_float<Out>(y);
  }
}

}  // namespace convscope::sparse_cuda
