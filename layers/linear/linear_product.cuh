// SPDX-License-Identifier: Apache-2.0
// linear_product.cuh: C[m,n] = sum over k of A[m,k] B[n,k] in tiles, each computed by the threads
// of one block. linear_fused_cuda.cu and linear_tail_weights_cuda.cu use these products; the
// comments at the top of these files explain the method.
#pragma once

#include <algorithm>

#include "framework/cuda/scratch.cuh"
#include "layers/linear/linear_tile.cuh"

namespace convscope::linear_tiles {

// Where and how a tile of C[m][n] is stored. Optionally adds bias[n] and the old value, and applies
// relu. Only elements whose m and n are inside are stored.
struct Result {
  float* data = nullptr;
  int ld = 0;
  int rows = 0, columns = 0;
  bool accumulate = false;
  bool relu = false;
  const float* bias = nullptr;  // [columns]
  float* behind = nullptr;      // receives one additional column, [rows]
  bool accumulate_behind = false;
};

// The functions of this type are called after an element is stored: weight(index in C, value) for
// an element of C, behind(row, value) for an element of the additional column. Here they do
// nothing. Another type with these functions may, for example, update the weight.
struct NothingMore {
  __device__ void weight(std::int64_t, float) const {}
  __device__ void behind(std::int64_t, float) const {}
};

struct Product {
  Factor a, b;
  Result c;
  int k = 0;
  int tiles_m = 0, tiles_n = 0;
  int splits = 1, k_of_split = 0;
  float* part = nullptr;  // [tiles][splits][rows][columns], with more than one split
  int first_tile = 0;     // in splits_done

  int blocks() const { return tiles_m * tiles_n * splits; }
};

// The number of finished splits of each tile; 0 again when a launch ends.
constexpr int kMaxSplitTiles = 4096;
[[maybe_unused]] static __device__ unsigned splits_done[kMaxSplitTiles];

// Computes one tile [kRows, kColumns] in a block. A thread has kM x kN accumulators, a warp has 8 x
// 4 threads, and kWarpsM x kWarpsN warps cover the tile. The block has kGroups such groups of
// warps. Each group multiplies a different part of k, and the results are added up.
template <Order kOrderA, Order kOrderB, int kM, int kN, int kWarpsM, int kWarpsN, int kChunk>
struct TileProduct {
  static constexpr int kRows = 8 * kM * kWarpsM;
  static constexpr int kColumns = 4 * kN * kWarpsN;
  static constexpr int kGroups = static_cast<int>(kWarps) / (kWarpsM * kWarpsN);
  using A = Tile<kOrderA, kRows, kChunk>;
  using B = Tile<kOrderB, kColumns, kChunk>;
  static constexpr int kSums = kGroups * kRows * kColumns;
  // Returns the floats of shared memory.
  static constexpr int floats(bool mask) {
    return std::max((mask ? 2 : 1) * A::kFloats + B::kFloats, kSums);
  }

  template <bool kPacked, bool kRolled = false, class More = NothingMore>
  static __device__ void run(const Product& p, int block, float* shared, const More& more = {}) {
    constexpr int kWidth = kPacked ? 4 : 1;
    const int tile = block / p.splits;
    const int split = block - tile * p.splits;
    const int m0 = tile / p.tiles_n * kRows;
    const int n0 = tile % p.tiles_n * kColumns;
    const int warp = static_cast<int>(threadIdx.x / 32);
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int group = warp / (kWarpsM * kWarpsN);
    const int warp_m = warp % (kWarpsM * kWarpsN) / kWarpsN * 8 * kM;  // first row of the warp
    const int warp_n = warp % kWarpsN * 4 * kN;
    const int place_m = lane / 4;
    const int place_n = lane % 4;
    float* const tile_a = shared;
    float* const tile_b = tile_a + A::kFloats;
    float* const tile_of_mask = tile_b + B::kFloats;
    const int k_first = split * p.k_of_split;
    const int k_last = k_first + p.k_of_split < p.k ? k_first + p.k_of_split : p.k;
    float sums[kM][kN] = {};
    float unrounded[kWidth] = {};  // sums over k of the elements of A that this thread has copied
    float b_sums[kWidth] = {};       // unused
    for (int k0 = k_first; k0 < k_last; k0 += kChunk) {
      const int k_end = k0 + kChunk < k_last ? k0 + kChunk : k_last;
      if (k0 > k_first) __syncthreads();
      A::template load<kWidth, kRolled>(tile_a, tile_of_mask, p.a, m0, k0, k_end);
      B::template load<kWidth, kRolled>(tile_b, nullptr, p.b, n0, k0, k_end);
      async_copy_commit();
      const int quads = (k_end - k0 + 3) / 4;
      fill_last_quad(tile_a, tile_b, k_end - k0, quads * 4);
      async_copy_wait<0>();
      A::template finish<kWidth, kRolled>(tile_a, tile_of_mask, p.a, m0, k0, k_end, unrounded);
      B::template finish<kWidth, kRolled>(tile_b, nullptr, p.b, n0, k0, k_end, b_sums);
      __syncthreads();
#pragma unroll 2
      for (int quad = group; quad < quads; quad += kGroups) {
        float a[kM][4], b[kN][4];
        A::template take<kM, 8>(A::line(tile_a, warp_m), place_m, quad * 4, a);
        B::template take<kN, 4>(B::line(tile_b, warp_n), place_n, quad * 4, b);
#pragma unroll
        for (int l = 0; l < 4; ++l) {
#pragma unroll
          for (int i = 0; i < kM; ++i) {
#pragma unroll
            for (int j = 0; j < kN; ++j) sums[i][j] += a[i][l] * b[j][l];
          }
        }
      }
    }
    // The additional column of the result (the gradient of the bias) is the sum of the elements of
    // A before rounding.
    const int behind = p.c.behind != nullptr && p.a.type != DType::f32 ? p.c.columns - n0 : -1;
    const bool has_behind = behind >= 0 && behind < kColumns;
    const float sum_behind = has_behind ? sum_of_sharers<kWidth>(unrounded, shared) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kM; ++i) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const int m = warp_m + A::template row<kM, 8>(place_m, i);
        const int n = warp_n + B::template row<kN, 4>(place_n, j);
        shared[(group * kRows + m) * kColumns + n] = sums[i][j];
      }
    }
    __syncthreads();
    if (has_behind) {
      if (threadIdx.x < kRows) {
        float* const to = shared + static_cast<int>(threadIdx.x) * kColumns + behind;
        for (int w = 0; w < kGroups; ++w) to[w * kRows * kColumns] = w == 0 ? sum_behind : 0.0f;
      }
      __syncthreads();
    }
    float* const part = p.part + static_cast<std::int64_t>(block) * kRows * kColumns;
    for (int at = static_cast<int>(threadIdx.x); at < kRows * kColumns;
         at += static_cast<int>(kThreads)) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kGroups; ++w) sum += shared[w * kRows * kColumns + at];
      if (p.splits > 1) {
        part[at] = sum;
      } else {
        store(p.c, m0 + at / kColumns, n0 + at % kColumns, sum, more);
      }
    }
    if (p.splits > 1) add_splits(p, tile, m0, n0, more);
  }

 private:
  // Returns the sum of row threadIdx.x of the tile. Lanes of a warp that have the same row are
  // added as a tree, then the sums of warps in order. Needs kWarps rows of shared memory; begins
  // with a barrier.
  template <int kWidth>
  static __device__ float sum_of_sharers(const float (&own)[kWidth], float* shared) {
    float sum = 0;
    if constexpr (kOrderA == Order::columns) {
      // Each thread has sums of kWidth neighbouring rows, and kOfOneSharer neighbouring threads
      // have all rows of the tile. Lanes that are a multiple of kOfOneSharer apart have the same
      // rows.
      constexpr int kOfOneSharer = kRows / kWidth;
      static_assert(kOfOneSharer <= 32 && 32 % kOfOneSharer == 0);
      const int lane = static_cast<int>(threadIdx.x % 32);
      float sums[kWidth];
#pragma unroll
      for (int l = 0; l < kWidth; ++l) {
        sums[l] = own[l];
#pragma unroll
        for (int offset = kOfOneSharer; offset < 32; offset *= 2) {
          sums[l] += __shfl_xor_sync(kAllLanes, sums[l], offset);
        }
      }
      __syncthreads();
      if (lane < kOfOneSharer) {
        float* const to = shared + static_cast<int>(threadIdx.x / 32) * kRows;
#pragma unroll
        for (int l = 0; l < kWidth; ++l) to[A::template own_column<kWidth>() + l] = sums[l];
      }
      __syncthreads();
      if (threadIdx.x < kRows) {
#pragma unroll
        for (int w = 0; w < static_cast<int>(kWarps); ++w) sum += shared[w * kRows + threadIdx.x];
      }
    }
    return sum;
  }
  // Products take four k at a time, so the last four may exceed the end of the K dimension. If an
  // operand has the order `columns`, the elements beyond the end have not been written, and this
  // function sets them to 0. In the order `rows` whole lines are loaded, which include them.
  static __device__ void fill_last_quad(float* tile_a, float* tile_b, int begin, int end) {
    if constexpr (kOrderA == Order::columns) fill<A::kLd>(tile_a, begin, end);
    if constexpr (kOrderB == Order::columns) fill<B::kLd>(tile_b, begin, end);
  }
  template <int kLd>
  static __device__ void fill(float* tile, int begin, int end) {
    for (int at = begin * kLd + static_cast<int>(threadIdx.x); at < end * kLd;
         at += static_cast<int>(kThreads)) {
      tile[at] = 0;
    }
  }
  // The last block to finish a tile adds the partial results of all splits.
  template <class More>
  static __device__ void add_splits(const Product& p, int tile, int m0, int n0, const More& more) {
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const auto others = static_cast<unsigned>(p.splits - 1);
      is_last = atomicAdd(&splits_done[p.first_tile + tile], 1u) == others;
      if (is_last) splits_done[p.first_tile + tile] = 0;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    const float* const parts =
        p.part + static_cast<std::int64_t>(tile) * p.splits * kRows * kColumns;
    for (int at = static_cast<int>(threadIdx.x); at < kRows * kColumns;
         at += static_cast<int>(kThreads)) {
      float sum = 0;
#pragma unroll 4
      for (int split = 0; split < p.splits; ++split) {
        sum += __ldcg(parts + split * kRows * kColumns + at);
      }
      store(p.c, m0 + at / kColumns, n0 + at % kColumns, sum, more);
    }
  }
  template <class More>
  static __device__ void store(const Result& c, int m, int n, float sum, const More& more) {
    if (m >= c.rows) return;
    if (n == c.columns && c.behind != nullptr) {
      const float value = c.accumulate_behind ? c.behind[m] + sum : sum;
      c.behind[m] = value;
      more.behind(m, value);
    }
    if (n >= c.columns) return;
    const std::int64_t at = static_cast<std::int64_t>(m) * c.ld + n;
    if (c.accumulate) sum += c.data[at];
    if (c.bias != nullptr) sum += c.bias[n];
    const float value = c.relu && sum <= 0.0f ? 0.0f : sum;  // NaN passes
    c.data[at] = value;
    more.weight(at, value);
  }
};

template <int kM, int kN, int kWarpsM, int kWarpsN, int kChunk>
using ForwardTile = TileProduct<Order::rows, Order::rows, kM, kN, kWarpsM, kWarpsN, kChunk>;
template <int kM, int kN, int kWarpsM, int kWarpsN, int kChunk>
using WeightTile = TileProduct<Order::columns, Order::columns, kM, kN, kWarpsM, kWarpsN, kChunk>;
template <int kM, int kN, int kWarpsM, int kWarpsN, int kChunk>
using InputTile = TileProduct<Order::rows, Order::columns, kM, kN, kWarpsM, kWarpsN, kChunk>;

// ---- how many tiles there are ----

constexpr std::int64_t kEnoughBlocks = 90;
constexpr int kSplit = 256;  // images

inline int narrow(std::int64_t size) { return static_cast<int>(size); }

inline std::int64_t tiles_of(const Product& p, int rows, int columns) {
  return ceil_div(p.c.rows, rows) *
         ceil_div(p.c.columns + (p.c.behind != nullptr ? 1 : 0), columns);
}

template <class Tiles>
void tile(Product& p, int splits = 1) {
  p.tiles_m = narrow(ceil_div(p.c.rows, Tiles::kRows));
  p.tiles_n = narrow(tiles_of(p, Tiles::kRows, Tiles::kColumns)) / p.tiles_m;
  p.k_of_split = narrow(ceil_div(ceil_div(p.k, splits), 4) * 4);
  p.splits = narrow(ceil_div(p.k, p.k_of_split));
}

inline int splits_of(std::int64_t k, std::int64_t tiles) {
  if (tiles > kMaxSplitTiles) return 1;
  const std::int64_t size = tiles * ceil_div(k, kSplit) < kEnoughBlocks ? kSplit / 2 : kSplit;
  return narrow(std::min<std::int64_t>(ceil_div(k, size), 32));
}

}  // namespace convscope::linear_tiles
