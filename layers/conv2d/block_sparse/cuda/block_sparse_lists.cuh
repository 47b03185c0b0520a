// SPDX-License-Identifier: Apache-2.0
// block_sparse_lists.cuh: block-sparse weights as lists for tensor cores. A list contains the
// columns (c,r,s) that any of 16 output channels keeps, in the order in which a warp reads them.
//
// Formula    list[k / 16] = the columns (c,r,s), ascending, that a block of rows 16 (k / 16) .. +
//            15 contains
// Textbook   for each list: for each column (c,r,s): if any of its 16 rows keeps it: append it
// Method     A block of threads makes one list. It sets a bit for each column in shared memory,
//            counts the bits before each 32-bit word, and writes entries and values at their
//            positions (block_sparse_lists_cuda.cu). Each list starts after the upper bounds of the
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
#include <limits>

#include "framework/cuda/launch.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"

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

}  // namespace convscope::block_sparse
