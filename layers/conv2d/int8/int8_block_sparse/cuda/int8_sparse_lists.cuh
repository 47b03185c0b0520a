// SPDX-License-Identifier: Apache-2.0
// int8_sparse_lists.cuh: block-sparse weights as one list for each 16 output channels. The list has
// the quads (four input channels at one tap) of which at least one of the 16 channels keeps a
// weight, in the order of the multiplication.
//
// Formula    list[k / 16] = the quads (c..c+3,r,s) in blocks of rows 16 (k / 16) .. + 15
// Textbook   for each list: for each segment of channels: for each quad: if any of its 4 x 16
//            weights is kept: append it
// Method     a block of threads makes one list. It marks the quads as bits in shared memory, counts
//            the bits before each word, and writes entries and weights to their positions. The list
//            begins at the sum of the upper bounds of all previous lists
// Shapes     Four entries are a half (the operand of half an MMA), two halves are a pair. entries
//            [pair][4] of {first half, second half}; weights [pair][lane] of four words, as lane l
//            holds B [32 x 8] twice: see weight_place(). A list has segments: the channels that are
//            in shared memory at the same time. Each segment begins with a new pair
// Order      The four entries of a half should be quads 0, 1, 2, 3 of their blocks of 16 channels;
//            these blocks may differ. Then four quads of eight pixels are in 32 different banks of
//            shared memory. Entry t of a half is the next quad t, while one is left; the remaining
//            quads fill the gaps
// Cost       bytes: the blocks, and 32 + 512 for each pair
// Numerics   copies
// Choices    256 threads: a list of ResNet has 16 to 1152 quads
// Source     E. Elsen, M. Dukhan, T. Gale, K. Simonyan: Fast Sparse ConvNets, CVPR 2020, arXiv
//            1911.09723 (blocks of rows that share a column, on a CPU)
// Read next  int8_sparse_tiles.cuh, the kernel that reads the lists
#pragma once

#include <algorithm>
#include <limits>

#include "framework/cuda/launch.cuh"
#include "framework/memory/memory.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/int8/int8_block_sparse/cuda/int8_sparse_patch.h"

namespace convscope::int8 {

inline constexpr int kListRows = 16;  // output channels of a list
inline constexpr int kQuad = 4;       // channels of an entry
inline constexpr int kPiece = 16;     // adjacent channels of a pixel, and their bytes
inline constexpr int kListThreads = 256;

struct SparseLists {
  int* begin = nullptr;      // [lists], the first pair of each
  int* end = nullptr;        // [lists][segments], the end of each segment's pairs
  // [pairs][4]: byte offsets in a stage for first and second half; y -1: no second half
  int2* entries = nullptr;
  uint4* weights = nullptr;  // [pairs][32]
};

// Returns the most quads that a stored block adds to a list. In a 1x1 kernel, four neighbouring
// columns of the weight matrix may share a quad, because they are neighbouring channels. In other
// kernels each column is in another quad.
inline std::int64_t quads_of_block(const Conv2dProblem& z) {
  const std::int64_t wide = z.weight_format.block_columns;
  if (z.r * z.s > 1) return wide;
  return wide % kQuad == 0 ? wide / kQuad : (wide + 2) / kQuad + 1;
}
inline std::int64_t quads_of(const Conv2dProblem& z) {
  return ceil_div(z.c, std::int64_t{kQuad}) * z.r * z.s;
}

// Returns the most pairs of all lists together; see capacity().
inline std::int64_t most_pairs(const Conv2dProblem& z, int segments) {
  const WeightFormat& format = z.weight_format;
  const std::int64_t lists = ceil_div(z.k, std::int64_t{kListRows});
  const std::int64_t touched = (format.block_rows + kListRows - 2) / kListRows + 1;
  return lists * segments +
         std::min(lists * quads_of(z), format.blocks * quads_of_block(z) * touched) / 8;
}

struct SparseListLayout {
  SparseListLayout(const Conv2dProblem& z, int segments, void* memory)
      : arena(memory, std::numeric_limits<std::size_t>::max() / 2) {
    const auto most = static_cast<std::size_t>(most_pairs(z, segments));
    const auto count = static_cast<std::size_t>(ceil_div(z.k, std::int64_t{kListRows}));
    lists.begin = take<int>(count);
    lists.end = take<int>(count * static_cast<std::size_t>(segments));
    lists.entries = take<int2>(most * 4);
    lists.weights = take<uint4>(most * 32);
  }
  template <class T>
  T* take(std::size_t count) {
    bytes += ScratchArena::round_up(count * sizeof(T));
    return arena.take<T>(count);
  }
  ScratchArena arena;
  std::size_t bytes = 0;
  SparseLists lists;
};

struct MakeSparseLists {
  BlockSparseView w;
  SparseLists to;
  Patch patch;
  int rows = 0, columns = 0;       // of the matrix of weights
  int taps = 1, taps_w = 1;        // of a channel
  int quads = 0, block_quads = 0;  // at most in a row; in a block
  int segments = 1, segment_pieces = 1;
  bool merged = false;  // SparseView::merged

  // Returns how many bits mark the kept quads of a segment that have the same number (0..3) in
  // their 16 channels: one bit for each 16 channels and tap.
  __host__ __device__ int bits() const { return segment_pieces * (merged ? 1 : taps); }
  __host__ __device__ int words() const { return (bits() + 31) / 32; }
  std::size_t shared_bytes() const {
    return static_cast<std::size_t>(segments) * (4 * static_cast<std::size_t>(words()) * 2 + 5) *
               4 +
           4;
  }
};

// Rows of blocks that overlap a list: [begin, end).
struct BlockRows {
  int begin, end;
};
__device__ inline BlockRows block_rows_of(const MakeSparseLists& z, int list) {
  const auto height = static_cast<int>(z.w.block_rows);
  const int last = min(z.rows, (list + 1) * kListRows) - 1;
  return {list * kListRows / height, last / height + 1};
}

// Returns the most pairs of a list: eight quads are one pair, and each segment may have one pair
// that is not full.
__device__ inline int capacity(const MakeSparseLists& z, int list) {
  const BlockRows rows = block_rows_of(z, list);
  const int blocks = z.w.row_begin[rows.end] - z.w.row_begin[rows.begin];
  return z.segments + static_cast<int>(min(static_cast<std::int64_t>(z.quads),
                                           static_cast<std::int64_t>(blocks) * z.block_quads) /
                                       8);
}

// Calls visit(stored block, its row of blocks). Each thread visits some of the stored blocks.
template <class Visit>
__device__ inline void for_each_block(const MakeSparseLists& z, int list, const Visit& visit) {
  const BlockRows rows = block_rows_of(z, list);
  for (int row = rows.begin; row < rows.end; ++row) {
    const int end = z.w.row_begin[row + 1];
    for (int i = z.w.row_begin[row] + static_cast<int>(threadIdx.x); i < end; i += kListThreads) {
      visit(i, row);
    }
  }
}

// A column's quad: the bit that marks it, and the offset of the word of x that it reads.
struct QuadBit {
  int segment, quad;  // quad: within its block of 16 channels
  int bit;
  int offset;  // in a stage, in bytes
};
__device__ inline QuadBit quad_bit(const MakeSparseLists& z, int column) {
  const int c = column / z.taps;
  int tap = column - c * z.taps, piece = c / kPiece;
  const int quad = c % kPiece / kQuad;
  int from = 0;
  if (z.merged) {
    piece = piece * z.taps + tap;
    tap = 0;
  } else {
    from = z.patch.slot_of_tap(tap / z.taps_w, tap % z.taps_w);
  }
  const int segment = piece / z.segment_pieces;
  piece -= segment * z.segment_pieces;
  return {segment, quad, z.merged ? piece : piece * z.taps + tap,
          (piece * z.patch.slots + from) * kPiece + quad * kQuad};
}

// The place of a quad in the halves of a segment: the half, and which of the half's four entries.
// half_place() returns it for the i-th kept quad with number `quad`.
struct HalfPlace {
  int half, entry;
};
__device__ inline HalfPlace half_place(const int* counts, int halves, int quad, int i) {
  if (i < halves) return {i, quad};
  int left = i - halves;  // index among all entries without a half
  for (int other = 0; other < quad; ++other) left += max(0, counts[other] - halves);
  for (int other = 0; other < 3; ++other) {
    const int gaps = max(0, halves - counts[other]);
    if (left < gaps) return {counts[other] + left, other};
    left -= gaps;
  }
  return {counts[3] + left, 3};
}

// Returns the byte offset of the weight of (row of the list, entry, channel of its quad). Column n
// of operand B belongs to the lanes with lane / 4 = n. In the result, thread t of four holds
// columns 2 t and 2 t + 1 of two products. These columns become the rows 4 t .. 4 t + 3, so that
// the thread ends with four neighbouring channels.
__device__ inline std::int64_t weight_place(int first_pair, const HalfPlace& at, int row,
                                            int channel) {
  const int product = row % 4 / 2, column = row / 4 * 2 + row % 2;
  const int lane = column * 4 + at.entry, word = at.half % 2 * 2 + product;
  return ((static_cast<std::int64_t>(first_pair + at.half / 2) * 32 + lane) * 4 + word) * 4 +
         channel;
}

// Kernel: block x is a list.
__global__ __launch_bounds__(kListThreads) void write_sparse_lists_kernel(
    const __grid_constant__ MakeSparseLists z) {
  __shared__ int scratch[32];
  const int words = z.words(), queues = z.segments * 4;
  auto* const marks = dynamic_shared<unsigned>();                      // [queues][words]
  int* const before = reinterpret_cast<int*>(marks + queues * words);  // [queues][words]
  int* const counts = before + queues * words;                         // [queues]
  int* const first_of = counts + queues;                               // [segments + 1] pairs
  const auto list = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const auto height = static_cast<int>(z.w.block_rows);
  const auto width = static_cast<int>(z.w.block_columns);
  int first = 0;
  for (int i = thread; i < list; i += kListThreads) first += capacity(z, i);
  first = block_sum(first, scratch);
  for (int i = thread; i < queues * words; i += kListThreads) marks[i] = 0;
  __syncthreads();
  for_each_block(z, list, [&](int block, int) {
    for (int i = 0; i < width; ++i) {
      const QuadBit at = quad_bit(z, z.w.columns[block] * width + i);
      atomicOr(&marks[(at.segment * 4 + at.quad) * words + at.bit / 32], 1u << (at.bit % 32));
    }
  });
  __syncthreads();
  for (int queue = thread; queue < queues; queue += kListThreads) {
    int count = 0;
    for (int i = queue * words; i < (queue + 1) * words; ++i) {
      before[i] = count;
      count += __popc(marks[i]);
    }
    counts[queue] = count;
  }
  __syncthreads();
  const auto halves_of = [&](int segment) {
    const int* const of = counts + segment * 4;
    return ceil_div(of[0] + of[1] + of[2] + of[3], 4);
  };
  if (thread == 0) {
    z.to.begin[list] = first;
    for (int segment = 0, pair = first; segment <= z.segments; ++segment) {
      first_of[segment] = pair;
      if (segment == z.segments) break;
      pair += ceil_div(halves_of(segment), 2);
      z.to.end[list * z.segments + segment] = pair;
    }
  }
  __syncthreads();
  const int end = first_of[z.segments];
  for (int i = first * 32 + thread; i < end * 32; i += kListThreads) {
    z.to.weights[i] = make_uint4(0, 0, 0, 0);
  }
  for (int segment = 0; segment < z.segments; ++segment) {
    const int halves = halves_of(segment);
    for (int i = first_of[segment] * 4 + thread; i < first_of[segment + 1] * 4; i += kListThreads) {
      const int half = (i / 4 - first_of[segment]) * 2;
      z.to.entries[i] = make_int2(0, half + 1 < halves ? 0 : -1);
    }
  }
  __syncthreads();
  const auto place_of = [&](const QuadBit& at) {
    const int word = (at.segment * 4 + at.quad) * words + at.bit / 32;
    const int i = before[word] + __popc(marks[word] & ((1u << (at.bit % 32)) - 1));
    return half_place(counts + at.segment * 4, halves_of(at.segment), at.quad, i);
  };
  auto* const offsets = reinterpret_cast<int*>(z.to.entries);
  auto* const bytes = reinterpret_cast<signed char*>(z.to.weights);
  const auto* const from = static_cast<const signed char*>(z.w.values);
  for_each_block(z, list, [&](int block, int row) {
    const int last = min(z.rows, (list + 1) * kListRows) - 1;
    for (int i = 0; i < width; ++i) {
      const int column = z.w.columns[block] * width + i;
      const QuadBit quad = quad_bit(z, column);
      const HalfPlace at = place_of(quad);
      const int pair = first_of[quad.segment];
      // Several blocks may add the same quad; all of them write the same offset.
      offsets[((pair + at.half / 2) * 4 + at.entry) * 2 + at.half % 2] = quad.offset;
      for (int r = max(0, list * kListRows - row * height); r < height && row * height + r <= last;
           ++r) {
        bytes[weight_place(pair, at, row * height + r - list * kListRows,
                           column / z.taps % kQuad)] =
            from[(static_cast<std::int64_t>(block) * height + r) * width + i];
      }
    }
  });
}

}  // namespace convscope::int8
