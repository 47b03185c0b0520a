// SPDX-License-Identifier: Apache-2.0
// block_sparse_lists.cuh: block-sparse weights as lists for tensor cores. A list contains the
// columns (c,r,s) that any of 16 output channels keeps, in the order in which a warp reads them.
//
// Formula    list[k / 16] = the columns (c,r,s), ascending, that a block of rows 16 (k / 16) .. +
//            15 contains
// Textbook   for each list: for each column (c,r,s): if any of its 16 rows keeps it: append it
// Method     A block of threads makes one list. It sets a bit for each column in shared memory,
//            counts the bits before each 32-bit word, and writes entries and values at their
//            positions (block_sparse_cuda.cu). Each list starts after the upper bounds of the
//            lists before it, so one launch makes all lists. Lists for the gradient of w have no
//            values; they keep the bits and their counts, which give the position of a column
// Shapes     Entries are in chunks of 8, the K dimension of an instruction; the last chunk of a
//            list is filled with entries without a tap. values [chunk][lane][4] is in the order in
//            which lane l holds A [16 x 8] of mma_tf32.cuh (see value_place())
// Cost       bytes = the blocks, and 8 + 64 for each entry
// Numerics   no arithmetic
// Choices    256 threads: a list of ResNet has 64 to 4608 columns, 2 to 144 words of bits
// Source     E. Elsen, M. Dukhan, T. Gale, K. Simonyan: Fast Sparse ConvNets, CVPR 2020, arXiv
//            1911.09723 (blocks of rows that share a column, on a CPU)
// Read next  block_sparse_cuda.cu, which reads the lists; block_sparse_data_cuda.cu, which needs
//            them in another order
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "framework/cuda/address.cuh"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/tensor_cores/mma_tf32.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/shared/kept_plans.h"

namespace convscope::block_sparse {

inline constexpr int kRows = 16;  // output channels of a list
inline constexpr int kChunk = 8;  // entries of an instruction
inline constexpr int kListThreads = 256;
inline constexpr int kMaxColumns = 32 * 8192;  // as bits in shared memory

inline int narrow(std::int64_t value) { return static_cast<int>(value); }

struct alignas(8) Entry {
  int offset;  // in x, from tap (0, 0) of channel 0
  int tap;     // -1: an entry without a weight
};

struct Lists {
  int* begin = nullptr;       // [lists], first chunk
  int* end = nullptr;         // [lists], chunk after the last
  Entry* entries = nullptr;   // [chunks][8]
  float* values = nullptr;    // [chunks][32][4]; null: not needed
  unsigned* marks = nullptr;  // [lists][words], a bit for each column; may be null
  int* before = nullptr;      // [lists][words], entries before a word
};

// Returns the expected number of columns of a list of 16 output channels when blocks are at random
// positions.
inline double expected_entries(const Conv2dProblem& z) {
  const WeightFormat& format = z.weight_format;
  const auto columns = static_cast<double>(z.c * z.r * z.s);
  const double density = static_cast<double>(format.stored_elements()) /
                         (static_cast<double>(z.k) * std::max(columns, 1.0));
  const double rows =
      std::max(1.0, static_cast<double>(kRows) / static_cast<double>(format.block_rows));
  return columns * (1 - std::pow(1 - std::min(density, 1.0), rows));
}

// Returns an upper bound of the total number of chunks of all lists. A stored block adds its
// columns to every list that shares an output channel with it.
inline std::int64_t most_chunks(const Conv2dProblem& z) {
  const WeightFormat& format = z.weight_format;
  const std::int64_t columns = z.c * z.r * z.s, lists = ceil_div(z.k, std::int64_t{kRows});
  const std::int64_t touched = (format.block_rows + kRows - 2) / kRows + 1;
  return std::min(lists * ceil_div(columns, std::int64_t{kChunk}),
                  format.blocks * format.block_columns * touched / kChunk + lists);
}

// Allocates arrays in a buffer, or only counts their bytes.
struct Pieces {
  explicit Pieces(void* memory) : arena(memory, std::numeric_limits<std::size_t>::max() / 2) {}
  template <class T>
  T* take(std::int64_t count) {
    const auto elements = static_cast<std::size_t>(count);
    bytes += ScratchArena::round_up(elements * sizeof(T));
    return arena.take<T>(elements);
  }
  ScratchArena arena;
  std::size_t bytes = 0;
};

// Returns lists without values, in memory allocated from `pieces`.
inline Lists take_lists(Pieces& pieces, const Conv2dProblem& z) {
  const std::int64_t lists = ceil_div(z.k, std::int64_t{kRows});
  Lists out;
  out.begin = pieces.take<int>(lists);
  out.end = pieces.take<int>(lists);
  out.entries = pieces.take<Entry>(most_chunks(z) * kChunk);
  return out;
}

struct MakeLists {
  BlockSparseView w;
  Lists to;
  int rows = 0, columns = 0;           // of the matrix
  int taps_w = 1, taps = 1;            // of a channel
  int plane = 0, down = 0, right = 0;  // steps in x to the next channel, row tap, column tap
};

// The rows of blocks [begin, end) that overlap a list.
struct BlockRows {
  int begin, end;
};
__device__ inline BlockRows block_rows_of(const MakeLists& z, int list) {
  const auto height = static_cast<int>(z.w.block_rows);
  const int last = min(z.rows, (list + 1) * kRows) - 1;
  return {list * kRows / height, last / height + 1};
}

// Returns the maximum number of chunks of a list.
__device__ inline int capacity(const MakeLists& z, int list) {
  const BlockRows rows = block_rows_of(z, list);
  const int blocks = z.w.row_begin[rows.end] - z.w.row_begin[rows.begin];
  return ceil_div(min(z.columns, blocks * static_cast<int>(z.w.block_columns)), kChunk);
}

// Returns the first chunk of a list: the sum of the capacities of the lists before it. All threads
// of a block must call it.
__device__ inline int first_chunk_of(const MakeLists& z, int list, int* scratch) {
  int first = 0;
  for (int i = static_cast<int>(threadIdx.x); i < list; i += kListThreads) first += capacity(z, i);
  return block_sum(first, scratch);
}

// Calls visit(index of a stored block, index of its block row) for the blocks that overlap a list.
// The threads of a block share the work.
template <class Visit>
__device__ inline void for_each_block(const MakeLists& z, int list, const Visit& visit) {
  const BlockRows rows = block_rows_of(z, list);
  for (int row = rows.begin; row < rows.end; ++row) {
    const int end = z.w.row_begin[row + 1];
    for (int i = z.w.row_begin[row] + static_cast<int>(threadIdx.x); i < end; i += kListThreads) {
      visit(i, row);
    }
  }
}

// For each 32-bit word of `marks`, counts the entries before the word. Returns the total number of
// entries.
__device__ inline int count_marks(const unsigned* marks, int words, int* before) {
  __shared__ int warp_sums[kListThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int total = 0;
  for (int first = 0; first < words; first += kListThreads) {
    const int i = first + thread;
    const int mine = i < words ? __popc(marks[i]) : 0;
    int sum = mine;  // sum of all lanes up to this one
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
      if (lane >= distance) sum += other;
    }
    __syncthreads();
    if (lane == 31) warp_sums[thread / 32] = sum;
    __syncthreads();
    int in_front = total;
    for (int warp = 0; warp < kListThreads / 32; ++warp) {
      if (warp < thread / 32) in_front += warp_sums[warp];
      total += warp_sums[warp];
    }
    if (i < words) before[i] = in_front + sum - mine;
  }
  __syncthreads();
  return total;
}

// Sets the bits of the columns of a list. All threads of a block must call it; ends with a barrier.
__device__ inline void mark_columns(const MakeLists& z, int list, unsigned* marks, int words) {
  const auto width = static_cast<int>(z.w.block_columns);
  for (int i = static_cast<int>(threadIdx.x); i < words; i += kListThreads) marks[i] = 0;
  __syncthreads();
  for_each_block(z, list, [&](int block, int) {
    for (int c = 0; c < width; ++c) {
      const int column = z.w.columns[block] * width + c;
      atomicOr(&marks[column / 32], 1u << (column % 32));
    }
  });
  __syncthreads();
}

// Returns the number of marked columns before `column`.
__device__ inline int entries_before(const unsigned* marks, const int* before, int column) {
  return before[column / 32] + __popc(marks[column / 32] & ((1u << (column % 32)) - 1));
}

// Calls visit(column, row of the list, value) for each stored weight of a list.
template <class Visit>
__device__ inline void for_each_value(const MakeLists& z, int list, const Visit& visit) {
  const auto height = static_cast<int>(z.w.block_rows);
  const auto width = static_cast<int>(z.w.block_columns);
  const auto* const from = static_cast<const float*>(z.w.values);
  for_each_block(z, list, [&](int block, int row) {
    const int last = min(z.rows, (list + 1) * kRows) - 1;
    for (int r = max(0, list * kRows - row * height); r < height && row * height + r <= last; ++r) {
      for (int c = 0; c < width; ++c) {
        visit(z.w.columns[block] * width + c, row * height + r - list * kRows,
              from[(static_cast<std::int64_t>(block) * height + r) * width + c]);
      }
    }
  });
}

// Returns the index in a chunk's values of the weight of (row, entry).
__device__ inline std::int64_t value_place(int entry, int row) {
  const int depth = entry % kChunk;
  const int lane = row % 8 * 4 + depth % 4;
  return (static_cast<std::int64_t>(entry / kChunk) * 32 + lane) * 4 + row / 8 + depth / 4 * 2;
}

// Returns the sizes of the matrix `w`. The caller sets `plane`, `down` and `right`.
inline MakeLists lists_of(const Conv2dProblem& z, const BlockSparseView& w) {
  return {.w = w,
          .to = {},
          .rows = narrow(z.k),
          .columns = narrow(z.c * z.r * z.s),
          .taps_w = narrow(z.s),
          .taps = narrow(z.r * z.s)};
}
inline LaunchShape shape_of(const MakeLists& z) {
  return {.grid = dim3(static_cast<unsigned>(ceil_div(z.rows, kRows))),
          .block = dim3(kListThreads),
          .shared_bytes = static_cast<std::size_t>(ceil_div(z.columns, 32)) * 8};
}

// Writes the lists for the forward pass of problem z. Entries hold offsets in x; columns are in
// ascending order.
void make_lists(const Conv2dProblem& z, const BlockSparseView& w, const Lists& lists);

// ---- pixels, and products of 16 channels by 8 columns over a K dimension of 8 -------------------

inline constexpr int kMaxTaps = 64;  // a pixel's mask has a bit for each tap
inline constexpr int kPixels = 8;    // pixels of a product
inline constexpr int kPeriod = 8;    // products before an accumulator restarts from zero

struct Geometry {
  int images = 0, image_size = 0, channels = 0;  // images; C H W; K
  int h = 0, w = 0, p = 0, q = 0, taps_h = 1, taps_w = 1;
  int stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0, apart_h = 1, apart_w = 1;
  FastDivisor by_q, by_area;
};
inline Geometry geometry_of(const Conv2dProblem& z) {
  return {.images = narrow(z.n),
          .image_size = narrow(z.c * z.h * z.w),
          .channels = narrow(z.k),
          .h = narrow(z.h),
          .w = narrow(z.w),
          .p = narrow(z.p()),
          .q = narrow(z.q()),
          .taps_h = narrow(z.r),
          .taps_w = narrow(z.s),
          .stride_h = narrow(z.stride_h),
          .stride_w = narrow(z.stride_w),
          .pad_h = narrow(z.pad_top),
          .pad_w = narrow(z.pad_left),
          .apart_h = narrow(z.dilation_h),
          .apart_w = narrow(z.dilation_w),
          .by_q = FastDivisor(narrow(z.q())),
          .by_area = FastDivisor(narrow(z.p() * z.q()))};
}

// A pixel of y. `from` is its offset in x at channel 0 and tap (0, 0), `inside` has a bit for each
// tap inside the image, and `to` is its offset in y at channel 0. Beyond the last pixel, `inside`
// is 0 and `to` is -1.
template <class Taps>
struct Pixel {
  int from;
  Taps inside;
  int to;
};
template <class Taps>
__device__ inline Pixel<Taps> pixel_at(const Geometry& z, int pixel) {
  const int area = z.p * z.q;
  if (pixel >= z.images * area) return {0, 0, -1};
  const int image = z.by_area.divide(pixel);
  const int at = pixel - image * area;
  const int row = z.by_q.divide(at);
  const int h = row * z.stride_h - z.pad_h, w = (at - row * z.q) * z.stride_w - z.pad_w;
  Pixel<Taps> out{image * z.image_size + h * z.w + w, 0, image * z.channels * area + at};
  Taps row_taps = 0;
  for (int s = 0; s < z.taps_w; ++s) {
    const bool is_inside = static_cast<unsigned>(w + s * z.apart_w) < static_cast<unsigned>(z.w);
    row_taps |= static_cast<Taps>(is_inside) << s;
  }
  for (int r = 0; r < z.taps_h; ++r) {
    const bool is_inside = static_cast<unsigned>(h + r * z.apart_h) < static_cast<unsigned>(z.h);
    out.inside |= is_inside ? row_taps << (r * z.taps_w) : 0;
  }
  return out;
}

template <class Taps>
__device__ inline Taps bit_of(int tap) {
  return tap < 0 ? Taps{0} : Taps{1} << tap;
}

// Adds the products of A [16 x 8] and each B [8 x 8] to the accumulators `high` and `low`. f32
// splits each operand into high and low TF32 parts; `low` accumulates the cross products. tf32 uses
// only the high parts.
template <int kTiles, bool kTf32>
__device__ inline void add_products(const float4& a, const float (&b)[kTiles][2],
                                    float (&high)[kTiles][4], float (&low)[kTiles][4]) {
  const HighLow a0 = high_low(a.x), a1 = high_low(a.y), a2 = high_low(a.z), a3 = high_low(a.w);
  const float a_high[4] = {a0.high, a1.high, a2.high, a3.high};
  const float a_low[4] = {a0.low, a1.low, a2.low, a3.low};
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    if constexpr (kTf32) {
      mma_tf32(high[j], a_high, rounded_tf32(b[j][0]), rounded_tf32(b[j][1]));
    } else {
      const HighLow b0 = high_low(b[j][0]), b1 = high_low(b[j][1]);
      mma_tf32(low[j], a_low, b0.high, b1.high);
      mma_tf32(low[j], a_high, b0.low, b1.low);
      mma_tf32(high[j], a_high, b0.high, b1.high);
    }
  }
}

// ---- counts ------------------------------------------------------------------------------------

// Returns the products in TF32 for each product: three for f32.
inline double products_of(const Conv2dProblem& z) { return z.math == MathMode::tf32 ? 1 : 3; }

// Returns the counts that do not depend on tiles. `entries` is the length of a list.
inline Cost sparse_counts(const Conv2dProblem& z, double entries) {
  return {.flops = std::max(1.0, 2 * number(z.n * z.k * z.p() * z.q()) * entries),
          .bytes = z.nominal_bytes(),
          .tensor_cores = true};
}

// ---- dw and dx, called by block_sparse_cuda.cu --------------------------------------------------

// Computes dw of the stored blocks (block_sparse_weights_cuda.cu). The next two functions return
// its workspace and its counts.
void weights_from_lists(const Conv2dBackwardWeightArgs& args);
std::size_t weights_workspace_bytes(const Conv2dProblem& problem);
Cost weights_cost(const Conv2dProblem& problem);

// Computes dx (block_sparse_data_cuda.cu).
void data_from_pieces(const Conv2dBackwardDataArgs& args);
void prepare_data(const Conv2dPrepareArgs& args);
std::size_t data_prepared_bytes(const Conv2dProblem& problem);
Cost data_cost(const Conv2dProblem& problem);

}  // namespace convscope::block_sparse
