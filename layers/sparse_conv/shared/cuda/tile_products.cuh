// SPDX-License-Identifier: Apache-2.0
// tile_products.cuh: the two products of a sparse convolution on tensor cores, with neighbours
// gathered in place.
//
//   sums      out[site, lane] = sum over taps and channels d of in[neighbour(site, tap), d] w
//             A = rows of neighbours, B = weights of a tap; K dimension = pieces of (tap, channel),
//             only taps that a site of the tile has. With few channels a step holds several taps
//   weights   dw[tap, c, k] = sum over sites of x[neighbour(site, tap), c] dy[site, k]
//             A = columns of (tap, channel), B = columns of dy; K dimension = slots, only units
//             that have one of the taps
//
// A missing neighbour is a row of zeros in shared memory, written without a load from memory.
// Read next  tile_table.h; layers/conv2d/shared/cuda/half_steps.cuh, which multiplies
#pragma once

#include <cstdint>
#include <span>

#include "layers/conv2d/shared/cuda/half_steps.cuh"
#include "layers/sparse_conv/shared/cuda/tile_table.cuh"

namespace convscope::sparse_cuda {

using half_tiles::Variant;

inline constexpr int kStepPieces = 8;  // of 64 elements of the K dimension

// The destination of sums.
struct SumsTarget {
  int lanes = 0;
  const float2* unscale = nullptr;  // null: 1
  const void* bias = nullptr;
  const float* start = nullptr;  // [sites, lanes], added; may be null
  float* parts = nullptr;        // [sites, lanes]: written instead of out; may be null
  void* out = nullptr;           // [sites, lanes]
  bool wide = false;             // true: out and bias are f32 for every type of operands
};

// Stores lanes k and k + 1 of a site, with k even; lanes that do not exist are skipped.
template <class Half>
class SumsStore {
 public:
  __device__ explicit SumsStore(const SumsTarget& target)
      : z_(target), scale_(target.unscale != nullptr ? *target.unscale : make_float2(1, 1)) {}

  __device__ void operator()(int site, int k, float first, float second) const {
    if (k >= z_.lanes) return;
    const std::int64_t at = static_cast<std::int64_t>(site) * z_.lanes + k;
    const bool two = k + 1 < z_.lanes;
    float y[2] = {first, second};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      y[e] = y[e] * scale_.x * scale_.y;
      if (e == 1 && !two) break;
      if (z_.start != nullptr) y[e] += z_.start[at + e];
      if (z_.bias != nullptr) {
        y[e] += z_.wide ? static_cast<const float*>(z_.bias)[k + e]
                        : to_float(static_cast<const Half*>(z_.bias)[k + e]);
      }
    }
    if (z_.parts != nullptr) {
      write(z_.parts + at, y, two);
    } else if (z_.wide) {
      write(static_cast<float*>(z_.out) + at, y, two);
    } else {
      write(static_cast<Half*>(z_.out) + at, y, two);
    }
  }

 private:
  // Stores two lanes at once if each row begins at an even element.
  template <class T>
  __device__ void write(T* to, const float (&y)[2], bool two) const {
    if (z_.lanes % 2 == 0) {
      if constexpr (sizeof(T) == 4) {
        *reinterpret_cast<float2*>(to) = make_float2(y[0], y[1]);
      } else {
        *reinterpret_cast<unsigned*>(to) = pair_from_floats<T>(y[0], y[1]);
      }
    } else {
      to[0] = from_float<T>(y[0]);
      if (two) to[1] = from_float<T>(y[1]);
    }
  }

  const SumsTarget& z_;
  float2 scale_;
};

struct SumsArgs {
  TableView table;
  const uint4* in = nullptr;  // [planes][sites there][pieces]
  std::int64_t in_plane = 0;
  const uint4* w = nullptr;  // [planes][taps][lanes][pieces]
  std::int64_t w_plane = 0;
  int pieces = 0;
  FastDivisor by_pieces;
  SumsTarget target;
};

// The shared memory after the stages: entries of the tile, and its taps.
template <class V>
struct SumsTables {
  unsigned* entries;  // [rows, kTileRows]
  int* list;          // taps that the tile has: tap | row << 10 | bit << 20
  int* count;

  __device__ SumsTables(unsigned char* stages, const TableView& z)
      : entries(reinterpret_cast<unsigned*>(stages + V::kStages * V::kStageBytes)),
        list(reinterpret_cast<int*>(entries + z.rows * V::kTileRows)),
        count(list + z.taps) {}
};

// Lists the taps of a tile in ascending order; warp 0 calls it.
__device__ inline void list_taps(const TableView& z, int first_unit, int units, int* list,
                                 int* count) {
  const int lane = static_cast<int>(threadIdx.x);
  int before = 0;
  for (int word = 0; word < z.words; ++word) {
    unsigned bits = 0;
    for (int unit = 0; unit < units; ++unit) {
      bits |= z.unit_words[(first_unit + unit) * z.words + word];
    }
    if ((bits >> lane & 1) != 0) {
      const int tap = word * 32 + lane;
      const int row = tap / z.run;
      list[before + __popc(bits & ((1u << lane) - 1))] =
          tap | (row - z.first_row) << 10 | (tap - row * z.run) << 20;
    }
    before += __popc(bits);
  }
  if (lane == 0) *count = before;
}

template <class V>
__device__ inline void store_sums(const SumsArgs& z, const float (&sums)[V::kSums],
                                  const unsigned* entries, int first_slot, int first_lane) {
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / 128;
  const int lane = thread % 32;
  const int first_row = group % V::kRowGroups * 64 + thread % 128 / 32 * 16 + lane / 4;
  const int column = first_lane + group / V::kRowGroups * V::kColumns + 2 * (lane % 4);
  const SumsStore<typename V::Half> store(z.target);
  TapPlace centre;
  if (z.table.order == nullptr) centre = tap_place(z.table, z.table.centre);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + 8 * i;
    const int site = z.table.order != nullptr
                         ? z.table.order[first_slot + row]
                         : neighbour(z.table, entries[centre.row * V::kTileRows + row], centre);
    if (site < 0) continue;
#pragma unroll
    for (int j = 0; j < V::kColumns / 8; ++j) {
      store(site, column + 8 * j, sums[4 * j + 2 * i], sums[4 * j + 2 * i + 1]);
    }
  }
}

// Grid: x counts tiles of slots, y counts tiles of lanes.
template <class V>
__global__ __launch_bounds__(V::kThreads,
                             V::kBlocks) void sums_kernel(const __grid_constant__ SumsArgs z) {
  unsigned char* const stages = aligned_shared();
  const SumsTables<V> tables(stages, z.table);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_slot = static_cast<int>(blockIdx.x) * V::kTileRows;
  const int first_lane = static_cast<int>(blockIdx.y) * V::kTileColumns;
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (int i = thread; i < z.table.rows * V::kTileRows; i += V::kThreads) {
    const int row = i / V::kTileRows;
    tables.entries[i] = z.table.entries[static_cast<std::int64_t>(row) * z.table.slots +
                                        first_slot + i % V::kTileRows];
  }
  if (thread < 32) {
    list_taps(z.table, first_slot / kUnit, V::kTileRows / kUnit, tables.list, tables.count);
  }
  __syncthreads();
  const int depth = *tables.count * z.pieces;
  const int steps = ceil_div(depth, kStepPieces);
  const int piece = thread % kStepPieces;
  const int first = thread / kStepPieces;
  constexpr int kRowStep = V::kThreads / kStepPieces;
  const auto load = [&](int step, unsigned char* stage) {
    const int q = step * kStepPieces + piece;
    const bool inside = q < depth;
    const int at = inside ? z.by_pieces.divide(q) : 0;
    const int packed = tables.list[at];
    const int part = q - at * z.pieces;
    const int bit = packed >> 20;
    const TapPlace tap{
        packed >> 10 & 1023, inside ? 1u << bit : 0u,
        z.table.descending ? ((1u << z.table.run) - 1) & ~((2u << bit) - 1) : (1u << bit) - 1};
    const unsigned* const entries = tables.entries + tap.row * V::kTileRows;
    unsigned char* to = stage;
#pragma unroll
    for (int i = 0; i < V::kTileRows / kRowStep; ++i) {
      const int row = first + i * kRowStep;
      const int there = neighbour(z.table, entries[row], tap);
      const uint4* const from =
          z.in + static_cast<std::int64_t>(max(there, 0)) * z.pieces + (inside ? part : 0);
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(to + plane * V::kRowsBytes + swizzle_tile(row, piece),
                       from + plane * z.in_plane, there >= 0);
      }
    }
    to = stage + V::kPlanes * V::kRowsBytes;
    const int weight_tap = z.table.weight_tap(packed & 1023);
#pragma unroll
    for (int i = 0; i < ceil_div(V::kTileColumns, kRowStep); ++i) {
      const int column = first + i * kRowStep;
      if (V::kTileColumns % kRowStep != 0 && column >= V::kTileColumns) break;
      const int lane = first_lane + column;
      const bool has = inside && lane < z.target.lanes;
      const uint4* const from =
          z.w +
          (has ? (static_cast<std::int64_t>(weight_tap) * z.target.lanes + lane) * z.pieces + part
               : 0);
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(to + plane * V::kColumnsBytes + swizzle_tile(column, piece),
                       from + plane * z.w_plane, has);
      }
    }
  };
  float sums[V::kSums];
  half_tiles::sum_steps<V, false>(sums, stages, steps, load);
  store_sums<V>(z, sums, tables.entries, first_slot, first_lane);
}

// ---- the gradient of the weights ---------------------------------------------------------------

struct WeightsArgs {
  TableView table;
  const uint4* x = nullptr;  // [planes][sites there][pieces]
  std::int64_t x_plane = 0;
  int pieces = 0;             // of x
  const uint4* dy = nullptr;  // [planes][sites here][dy_pieces]
  std::int64_t dy_plane = 0;
  int dy_pieces = 0, lanes = 0;
  int units_of_split = 0;
  int ring_rows = 1;       // rows of `entries` that a tile reads
  float* parts = nullptr;  // [splits][rows][lanes]
  int rows = 0;            // of parts: whole tiles of (tap, piece, half)
};

inline constexpr int kMaxUnits = 2048;  // of a split, whose list is in shared memory

// Grid: x counts tiles of (tap, channel), y counts tiles of lanes, z counts splits of the slots.
template <class V>
__global__ __launch_bounds__(V::kThreads, V::kBlocks) void weights_kernel(
    const __grid_constant__ WeightsArgs z) {
  static_assert(V::kColumnGroups == 1 && V::kColumns % 64 == 0);
  constexpr int kPieces = kStepPieces * V::kRowGroups;  // of the tile's rows
  constexpr int kRowStep = V::kThreads / kPieces;
  constexpr int kRows = kTileDepth / kRowStep;
  constexpr int kDyPieces = V::kColumns / 8;
  constexpr int kDyStep = V::kThreads / kDyPieces;
  constexpr int kDyRows = ceil_div(kTileDepth, kDyStep);
  static_assert(kTileDepth % kDyStep == 0);
  __shared__ unsigned own_words[16];
  __shared__ int unit_count;
  unsigned char* const stages = aligned_shared();
  auto* const list = reinterpret_cast<unsigned short*>(stages + V::kStages * V::kStageBytes);
  const TableView& t = z.table;
  const int thread = static_cast<int>(threadIdx.x);
  const int first_unit = static_cast<int>(blockIdx.z) * z.units_of_split;
  const int units = min(z.units_of_split, t.slots / kUnit - first_unit);
  const int first_piece = static_cast<int>(blockIdx.x) * kPieces;
  const int first_lane = static_cast<int>(blockIdx.y) * V::kColumns;

  let_next_kernel_start();
  wait_for_previous_kernel();

  // Finds the taps of this tile, and the units in which a slot has one of these taps.
  if (thread < 16) {
    unsigned word = 0;
    const int last_tap = t.first_tap + (first_piece + kPieces - 1) / z.pieces;
    for (int tap = t.first_tap + first_piece / z.pieces; tap <= last_tap; ++tap) {
      if (tap < t.end_tap && tap / 32 == thread) word |= 1u << tap % 32;
    }
    own_words[thread] = word;
  }
  __syncthreads();
  if (thread < 32) {
    int count = 0;
    for (int first = 0; first < units; first += 32) {
      unsigned bits = 0;
      if (first + thread < units) {
        for (int word = 0; word < t.words; ++word) {
          bits |= t.unit_words[(first_unit + first + thread) * t.words + word] & own_words[word];
        }
      }
      const unsigned with = __ballot_sync(kAllLanes, bits != 0);
      if (bits != 0) {
        list[count + __popc(with & ((1u << thread) - 1))] =
            static_cast<unsigned short>(first + thread);
      }
      count += __popc(with);
    }
    if (thread == 0) unit_count = count;
  }
  __syncthreads();
  const int steps = unit_count;

  const int piece = thread % kPieces;
  const int row = thread / kPieces;
  const int own_tap = (first_piece + piece) / z.pieces;
  const int part = first_piece + piece - own_tap * z.pieces;
  const int tap = t.first_tap + own_tap;
  const TapPlace place = tap_place(t, min(tap, t.end_tap - 1));
  const int dy_piece = thread % kDyPieces;
  const int dy_row = thread / kDyPieces;
  const int dy_part = first_lane / 8 + dy_piece;
  TapPlace centre;
  if (t.order == nullptr) centre = tap_place(t, t.centre);
  // Entries are loaded into shared memory kAhead steps before the rows to which they point. Both
  // loads of a step use the same barriers (half_steps.cuh).
  const int first_row = tap_place(t, min(t.first_tap + first_piece / z.pieces, t.end_tap - 1)).row;
  constexpr int kRing = 2 * V::kAhead;
  auto* const ring = reinterpret_cast<unsigned*>(stages + V::kStages * V::kStageBytes +
                                                 kMaxUnits * sizeof(unsigned short));
  const auto entries_of = [&](int step) { return ring + step % kRing * (z.ring_rows + 1) * kUnit; };
  const auto bring_entries = [&](int step) {
    const std::int64_t slot = static_cast<std::int64_t>(first_unit + list[step]) * kUnit;
    unsigned* const to = entries_of(step);
    for (int i = thread; i < (z.ring_rows + 1) * (kUnit / 4); i += V::kThreads) {
      const int line = i / (kUnit / 4);
      const unsigned* from = nullptr;  // the last line has the site of each slot
      if (line < z.ring_rows) {
        from = t.entries + static_cast<std::int64_t>(min(first_row + line, t.rows - 1)) * t.slots;
      } else if (t.order != nullptr) {
        from = reinterpret_cast<const unsigned*>(t.order);
      } else {
        from = t.entries + static_cast<std::int64_t>(centre.row) * t.slots;
      }
      async_copy<16>(to + i * 4, from + slot + i % (kUnit / 4) * 4);
    }
  };
#pragma unroll
  for (int step = 0; step < V::kAhead; ++step) {
    if (step < steps) bring_entries(step);
  }
  async_copy_commit();
  async_copy_wait<0>();
  __syncthreads();
  const int line = place.row - first_row;
  const auto load = [&](int step, unsigned char* stage) {
    const unsigned* const entries = entries_of(step);
    unsigned char* to = stage + piece / 8 * kTileBlockBytes;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int there =
          tap < t.end_tap ? neighbour(t, entries[line * kUnit + row + i * kRowStep], place) : -1;
      const uint4* const from = z.x + static_cast<std::int64_t>(max(there, 0)) * z.pieces + part;
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(to + plane * V::kRowsBytes + swizzle_tile(row + i * kRowStep, piece % 8),
                       from + plane * z.x_plane, there >= 0);
      }
    }
    to = stage + V::kPlanes * V::kRowsBytes + dy_piece / 8 * kTileBlockBytes;
#pragma unroll
    for (int i = 0; i < kDyRows; ++i) {
      const unsigned entry = entries[z.ring_rows * kUnit + dy_row + i * kDyStep];
      int here = t.order != nullptr ? static_cast<int>(entry) : neighbour(t, entry, centre);
      if (dy_part >= z.dy_pieces) here = -1;
      const uint4* const from =
          z.dy + (here >= 0 ? static_cast<std::int64_t>(here) * z.dy_pieces + dy_part : 0);
#pragma unroll
      for (int plane = 0; plane < V::kPlanes; ++plane) {
        async_copy<16>(
            to + plane * V::kColumnsBytes + swizzle_tile(dy_row + i * kDyStep, dy_piece % 8),
            from + plane * z.dy_plane, here >= 0);
      }
    }
    if (step + V::kAhead < steps) bring_entries(step + V::kAhead);
  };
  float sums[V::kSums];
  half_tiles::sum_steps<V, true>(sums, stages, steps, load);

  const int group = thread / 128;
  const int lane = thread % 32;
  const int out_row = first_piece * 8 + group * 64 + thread % 128 / 32 * 16 + lane / 4;
  const int column = first_lane + 2 * (lane % 4);
  float* const parts = z.parts + static_cast<std::int64_t>(blockIdx.z) * z.rows * z.lanes;
#pragma unroll
  for (int j = 0; j < V::kColumns / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int k = column + 8 * j + i % 2;
      if (k < z.lanes) {
        parts[static_cast<std::int64_t>(out_row + i / 2 * 8) * z.lanes + k] = sums[4 * j + i];
      }
    }
  }
}

struct AddParts {
  const float* parts = nullptr;  // [splits][rows][lanes]
  const float2* unscale = nullptr;
  void* dw = nullptr;  // [lanes, channels, taps]
  int splits = 0, rows = 0, lanes = 0, channels = 0, taps = 0, pieces = 0;
  int first_tap = 0, end_tap = 0;  // of the parts
  bool accumulate = false;
  // The number of pairs of each tap. `native` has splits without pairs, whose results are not
  // written; these counts tell which splits to add. Null: all splits have been written.
  const int* counts = nullptr;
  int pairs_of_split = 1;
};

template <class Out>
__global__ __launch_bounds__(kThreads) void add_parts_kernel(const __grid_constant__ AddParts z) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  const float2 scale = z.unscale != nullptr ? *z.unscale : make_float2(1, 1);
  const std::int64_t count =
      static_cast<std::int64_t>(z.lanes) * z.channels * (z.end_tap - z.first_tap);
  const std::int64_t part = static_cast<std::int64_t>(z.rows) * z.lanes;
  Out* const dw = static_cast<Out*>(z.dw);
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const auto k = static_cast<int>(i % z.lanes);
    const auto row = static_cast<int>(i / z.lanes);  // (tap, c)
    const int tap = row / z.channels;
    const int c = row - tap * z.channels;
    const float* const from =
        z.parts + static_cast<std::int64_t>(tap * z.pieces * 8 + c) * z.lanes + k;
    const int splits =
        z.counts == nullptr ? z.splits : max(1, ceil_div(z.counts[tap], z.pairs_of_split));
    float sum = 0;
#pragma unroll 8
    for (int split = 0; split < splits; ++split) sum += from[split * part];
    sum = sum * scale.x * scale.y;
    Out& to = dw[(static_cast<std::int64_t>(k) * z.channels + c) * z.taps + z.first_tap + tap];
    to = from_float<Out>(z.accumulate ? to_float(to) + sum : sum);
  }
}

// ---- the tiles that the kernels are compiled for ------------------------------------------------

struct SumsInstance {
  void (*kernel)(const SumsArgs) = nullptr;
  int rows = 0, columns = 0, threads = 0, blocks = 1;
  std::size_t stage_bytes = 0;

  std::size_t shared_bytes(int entry_rows, int taps) const {
    return stage_bytes +
           sizeof(int) * (static_cast<std::size_t>(entry_rows) * static_cast<std::size_t>(rows) +
                          static_cast<std::size_t>(taps) + 1);
  }
};
struct WeightsInstance {
  void (*kernel)(const WeightsArgs) = nullptr;
  int rows = 0, columns = 0, threads = 0, blocks = 1;
  std::size_t stage_bytes = 0;
  int ring = 1;  // steps whose entries are in shared memory

  std::size_t shared_bytes(int ring_rows) const {
    return stage_bytes + kMaxUnits * sizeof(unsigned short) +
           sizeof(int) * static_cast<std::size_t>(ring * (ring_rows + 1) * kUnit);
  }
};

template <class V>
SumsInstance sums_instance() {
  return {sums_kernel<V>, V::kTileRows,   V::kTileColumns, static_cast<int>(V::kThreads),
          V::kBlocks,     V::kSharedBytes};
}
template <class V>
WeightsInstance weights_instance() {
  return {weights_kernel<V>, V::kTileRows,    V::kTileColumns, static_cast<int>(V::kThreads),
          V::kBlocks,        V::kSharedBytes, 2 * V::kAhead};
}

// The functions f32_*() return the kernels that compute f32 as three fp16 products. f16_*() return
// those for f16, which also compute f32 as TF32 (one product of scaled fp16).
std::span<const SumsInstance> f32_sums();
std::span<const SumsInstance> f16_sums();
std::span<const SumsInstance> bf16_sums();
std::span<const WeightsInstance> f32_weights();
std::span<const WeightsInstance> f16_weights();
std::span<const WeightsInstance> bf16_weights();

// Lists for each number of columns the tiles of 256, 128 and 64 sites.
template <class Half>
std::span<const SumsInstance> one_product_sums() {
  static const SumsInstance kInstances[] = {
      sums_instance<Variant<Half, Half, 1, 4, 1, 16, 3, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 16, 4, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 16, 4, 4>>(),
      sums_instance<Variant<Half, Half, 1, 4, 1, 32, 3, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 32, 4, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 32, 4, 4>>(),
      sums_instance<Variant<Half, Half, 1, 4, 1, 64, 4, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 64, 4, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 64, 4, 3>>(),
      sums_instance<Variant<Half, Half, 1, 4, 1, 128, 4, 1>>(),
      sums_instance<Variant<Half, Half, 1, 2, 1, 128, 3, 2>>(),
      sums_instance<Variant<Half, Half, 1, 1, 1, 128, 3, 2>>(),
  };
  return kInstances;
}

template <class Half>
std::span<const WeightsInstance> one_product_weights() {
  static const WeightsInstance kInstances[] = {
      weights_instance<Variant<Half, Half, 1, 4, 1, 64, 4, 1>>(),
      weights_instance<Variant<Half, Half, 1, 2, 1, 64, 4, 2>>(),
      weights_instance<Variant<Half, Half, 1, 1, 1, 64, 4, 3>>(),
      weights_instance<Variant<Half, Half, 1, 4, 1, 128, 4, 1>>(),
      weights_instance<Variant<Half, Half, 1, 2, 1, 128, 3, 2>>(),
      weights_instance<Variant<Half, Half, 1, 1, 1, 128, 3, 2>>(),
  };
  return kInstances;
}

}  // namespace convscope::sparse_cuda
