// SPDX-License-Identifier: Apache-2.0
// block_sparse_lists.cuh: block-sparse weights as one list for each 16 output channels: which
// (c,r,s) any of its rows keeps, in the order in which a warp of tensor-core products reads them.
//
// Formula    list[k / 16] = the columns (c,r,s) in ascending order where a block of rows
//            16 (k / 16) .. + 15 lies
// Textbook   for each list: for each column (c,r,s): if any of its 16 rows keeps it: append it
// Plan       a block of threads makes one list: it marks the columns as bits in shared memory,
//            counts the bits in front of each word, and writes entries and values at their places.
//            It finds where its list begins by adding up what the lists before it hold at most, so
//            one launch does it all
// Shapes     entries in chunks of 8, the depth of a product; a list is filled up with entries
//            without a tap. values [chunk][lane][4], as lane l holds A [16 x 8] of mma_tf32.cuh:
//            value_place()
// Cost       bytes: the blocks, and 8 + 64 for each entry
// Numerics   copies
// Choices    256 threads: a list of ResNet has 64 to 4608 columns, 2 to 144 words of bits
// Source     E. Elsen, M. Dukhan, T. Gale, K. Simonyan: Fast Sparse ConvNets, CVPR 2020, arXiv
//            1911.09723 (blocks of rows that share a column, on a CPU)
// Read next  block_sparse_cuda.cu, which walks along them
#pragma once

#include <algorithm>
#include <limits>

#include "framework/cuda/launch.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"

namespace convscope::block_sparse {

inline constexpr int kRows = 16;  // output channels of a list
inline constexpr int kChunk = 8;  // entries of a product
inline constexpr int kListThreads = 256;
inline constexpr int kMostColumns = 32 * 8192;  // as bits in shared memory

inline int narrow(std::int64_t value) { return static_cast<int>(value); }

struct Entry {
  int offset;  // in x, from tap (0, 0) of channel 0
  int tap;     // -1: fills up a chunk, nothing is there
};

struct Lists {
  int* begin = nullptr;      // [lists], the first chunk
  int* end = nullptr;        // [lists], behind the last
  Entry* entries = nullptr;  // [chunks][8]
  float* values = nullptr;   // [chunks][32][4]
};

// The most chunks that all lists have. Each block brings its columns to each list that it touches.
inline std::int64_t most_chunks(const Conv2dProblem& z) {
  const WeightFormat& format = z.weight_format;
  const std::int64_t columns = z.c * z.r * z.s, lists = ceil_div(z.k, std::int64_t{kRows});
  const std::int64_t touched = (format.block_rows + kRows - 2) / kRows + 1;
  return std::min(lists * ceil_div(columns, std::int64_t{kChunk}),
                  format.blocks * format.block_columns * touched / kChunk + lists);
}

struct ListLayout {
  ListLayout(const Conv2dProblem& z, void* memory)
      : arena(memory, std::numeric_limits<std::size_t>::max() / 2) {
    const auto most = static_cast<std::size_t>(most_chunks(z));
    const auto count = static_cast<std::size_t>(ceil_div(z.k, std::int64_t{kRows}));
    lists.begin = take<int>(count);
    lists.end = take<int>(count);
    lists.entries = take<Entry>(most * kChunk);
    lists.values = take<float>(most * kChunk * kRows);
  }
  template <class T>
  T* take(std::size_t count) {
    bytes += ScratchArena::round_up(count * sizeof(T));
    return arena.take<T>(count);
  }
  ScratchArena arena;
  std::size_t bytes = 0;
  Lists lists;
};

struct MakeLists {
  BlockSparseView w;
  Lists to;
  int rows = 0, columns = 0;           // of the matrix
  int taps_w = 1, taps = 1;            // of a channel
  int plane = 0, down = 0, right = 0;  // of x: from one channel, row tap, column tap to the next
};

// Rows of blocks that a list touches: [begin, end).
struct BlockRows {
  int begin, end;
};
__device__ inline BlockRows block_rows_of(const MakeLists& z, int list) {
  const auto height = static_cast<int>(z.w.block_rows);
  const int last = min(z.rows, (list + 1) * kRows) - 1;
  return {list * kRows / height, last / height + 1};
}

// Chunks that a list has at most.
__device__ inline int capacity(const MakeLists& z, int list) {
  const BlockRows rows = block_rows_of(z, list);
  const int blocks = z.w.row_begin[rows.end] - z.w.row_begin[rows.begin];
  return ceil_div(min(z.columns, blocks * static_cast<int>(z.w.block_columns)), kChunk);
}

// Calls visit(stored block, its row of blocks); the threads of a block share them out.
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

// Entries in front of each word of 32 columns, from 0; returns their number.
__device__ inline int count_marks(const unsigned* marks, int words, int* before) {
  __shared__ int of_warps[kListThreads / 32];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  int total = 0;
  for (int first = 0; first < words; first += kListThreads) {
    const int i = first + thread;
    const int mine = i < words ? __popc(marks[i]) : 0;
    int sum = mine;  // of this lane and those in front of it
    for (int distance = 1; distance < 32; distance *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(distance));
      if (lane >= distance) sum += other;
    }
    __syncthreads();
    if (lane == 31) of_warps[thread / 32] = sum;
    __syncthreads();
    int in_front = total;
    for (int warp = 0; warp < kListThreads / 32; ++warp) {
      if (warp < thread / 32) in_front += of_warps[warp];
      total += of_warps[warp];
    }
    if (i < words) before[i] = in_front + sum - mine;
  }
  __syncthreads();
  return total;
}

// Where the value of (row, entry) of a chunk stands.
__device__ inline std::int64_t value_place(int entry, int row) {
  const int depth = entry % kChunk;
  const int lane = row % 8 * 4 + depth % 4;
  return (static_cast<std::int64_t>(entry / kChunk) * 32 + lane) * 4 + row / 8 + depth / 4 * 2;
}

// Block (x: list).
__global__ __launch_bounds__(kListThreads) void write_lists_kernel(
    const __grid_constant__ MakeLists z) {
  auto* const marks = dynamic_shared<unsigned>();
  __shared__ int scratch[32];
  const int words = ceil_div(z.columns, 32);
  int* const before = reinterpret_cast<int*>(marks + words);
  const auto list = static_cast<int>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const auto width = static_cast<int>(z.w.block_columns);
  int first = 0;
  for (int i = thread; i < list; i += kListThreads) first += capacity(z, i);
  first = block_sum(first, scratch);
  for (int i = thread; i < words; i += kListThreads) marks[i] = 0;
  __syncthreads();
  for_each_block(z, list, [&](int block, int) {
    for (int c = 0; c < width; ++c) {
      const int column = z.w.columns[block] * width + c;
      atomicOr(&marks[column / 32], 1u << (column % 32));
    }
  });
  __syncthreads();
  const int count = count_marks(marks, words, before);
  const int chunks = ceil_div(count, kChunk);
  if (thread == 0) {
    z.to.begin[list] = first;
    z.to.end[list] = first + chunks;
  }
  Entry* const entries = z.to.entries + static_cast<std::int64_t>(first) * kChunk;
  float* const values = z.to.values + static_cast<std::int64_t>(first) * kChunk * kRows;
  for (int i = thread; i < chunks * kChunk * kRows; i += kListThreads) values[i] = 0;
  for (int i = count + thread; i < chunks * kChunk; i += kListThreads) entries[i] = {0, -1};
  for (int i = thread; i < z.columns; i += kListThreads) {
    const unsigned bit = 1u << (i % 32);
    if ((marks[i / 32] & bit) == 0) continue;
    const int tap = i % z.taps;
    entries[before[i / 32] + __popc(marks[i / 32] & (bit - 1))] = {
        i / z.taps * z.plane + tap / z.taps_w * z.down + tap % z.taps_w * z.right, tap};
  }
  __syncthreads();
  const auto height = static_cast<int>(z.w.block_rows);
  const auto* const from = static_cast<const float*>(z.w.values);
  for_each_block(z, list, [&](int block, int row) {
    const int last = min(z.rows, (list + 1) * kRows) - 1;
    for (int r = max(0, list * kRows - row * height); r < height && row * height + r <= last; ++r) {
      for (int c = 0; c < width; ++c) {
        const int column = z.w.columns[block] * width + c;
        const int entry =
            before[column / 32] + __popc(marks[column / 32] & ((1u << (column % 32)) - 1));
        values[value_place(entry, row * height + r - list * kRows)] =
            from[(static_cast<std::int64_t>(block) * height + r) * width + c];
      }
    }
  });
}

// `w` into `lists` for the forward pass of z.
inline void make_lists(const Conv2dProblem& z, const BlockSparseView& w, const Lists& lists) {
  const MakeLists make{.w = w,
                       .to = lists,
                       .rows = narrow(z.k),
                       .columns = narrow(z.c * z.r * z.s),
                       .taps_w = narrow(z.s),
                       .taps = narrow(z.r * z.s),
                       .plane = narrow(z.h * z.w),
                       .down = narrow(z.dilation_h * z.w),
                       .right = narrow(z.dilation_w)};
  const auto words = static_cast<std::size_t>(ceil_div(make.columns, 32));
  launch(write_lists_kernel,
         {.grid = dim3(static_cast<unsigned>(ceil_div(make.rows, kRows))),
          .block = dim3(kListThreads),
          .shared_bytes = words * 8},
         make);
}

}  // namespace convscope::block_sparse
