// SPDX-License-Identifier: Apache-2.0
// block_sparse_index.cpp: sorts block-sparse weights into the order in which a kernel reads them,
// with a counting sort by segment (a tap of a chunk or channel). Within a segment the channels are
// in ascending order.
#include "layers/conv2d/block_sparse/cpu/block_sparse_plan.h"
#include "layers/conv2d/shared/weight_sums.h"

namespace convscope::block_sparse {
namespace {

// For each stored block that overlaps the rows [16 k_block, 16 k_block + 16), calls visit(block,
// first row of the block, begin, end), where [begin, end) are the rows of the overlap.
template <class Visit>
void for_each_block(const Conv2dProblem& z, const BlockSparseView& w, Index k_block,
                    const Visit& visit) {
  const Index first = k_block * kChannelBlock;
  const Index end = std::min(first + kChannelBlock, z.k);
  for (Index row = first / w.block_rows; row * w.block_rows < end; ++row) {
    const Index begin_row = std::max(first, row * w.block_rows);
    const Index end_row = std::min(end, (row + 1) * w.block_rows);
    for (Index b = w.row_begin[row]; b < w.row_begin[row + 1]; ++b) {
      visit(b, row * w.block_rows, begin_row, end_row);
    }
  }
}

// Sets place[column] to 0 where the output channels of k_block have an entry, elsewhere to -1.
void mark(const BlockSparseTiling& pass, const BlockSparseView& w, Index k_block,
          std::int32_t* place) {
  std::fill_n(place, pass.counts.columns, -1);
  for_each_block(pass.z, w, k_block, [&](Index b, Index, Index, Index) {
    std::fill_n(place + w.columns[b] * w.block_columns, w.block_columns, 0);
  });
}

// Calls visit(column, channel of the group, tap) for each column that has an entry.
template <class Visit>
void for_each_marked(const BlockSparseTiling& pass, const std::int32_t* place, const Visit& visit) {
  const Conv2dProblem& z = pass.z;
  Index column = 0;
  for (Index c = 0; c < z.c_per_group(); ++c) {
    for (Index r = 0; r < z.r; ++r) {
      for (Index s = 0; s < z.s; ++s, ++column) {
        if (place[column] >= 0) visit(column, c, s * z.r + r);
      }
    }
  }
}

Index group_of(const BlockSparseTiling& pass, Index k_block) {
  return k_block * kChannelBlock / pass.z.k_per_group();
}
Index segment_of(const BlockSparseTiling& pass, Index k_block, Index c, Index tap) {
  const Index taps = pass.counts.taps;
  return pass.forward ? (k_block * pass.chunks + pass.chunk_of(c)) * taps + tap
                      : (group_of(pass, k_block) * pass.z.c_per_group() + c) * taps + tap;
}
// Returns the distance, in floats of `in`, from a tile's pixel to the pixel that an entry reads.
Index offset_of(const BlockSparseTiling& pass, Index k_block, Index c, Index tap) {
  if (!pass.forward) return k_block * pass.in_plane() + pass.shift(tap);
  const Index channel = group_of(pass, k_block) * pass.z.c_per_group() + c;
  return pass.channel_at(channel) + pass.shift(tap);
}

void count_segments(const BlockSparseTiling& pass, const BlockSparseView& w, const Index16& out,
                    std::int32_t* place, std::int32_t* next) {
  const Index segments = pass.segments();
  std::fill_n(next, segments, 0);
  for (Index k_block = 0; k_block < pass.counts.k_blocks; ++k_block) {
    mark(pass, w, k_block, place);
    for_each_marked(pass, place,
                    [&](Index, Index c, Index tap) { ++next[segment_of(pass, k_block, c, tap)]; });
  }
  std::int32_t sum = 0;
  for (Index i = 0; i < segments; ++i) {
    out.segment[i] = sum;
    sum += next[i];
    next[i] = out.segment[i];
  }
  out.segment[segments] = sum;
}

// Gives each entry of k_block its position in the sorted list, and writes this position to
// place[column]. mark() has set place[column] to 0 for these columns.
void place_entries(const BlockSparseTiling& pass, Index k_block, const Index16& out,
                   std::int32_t* place, std::int32_t* next) {
  for_each_marked(pass, place, [&](Index column, Index c, Index tap) {
    const std::int32_t entry = next[segment_of(pass, k_block, c, tap)]++;
    place[column] = entry;
    out.offset[entry] = static_cast<std::int32_t>(offset_of(pass, k_block, c, tap));
  });
}

Index ints(Index count) { return piece_floats(count); }

}  // namespace

std::size_t index_bytes(const EntryCounts& counts, Index segments) {
  return static_cast<std::size_t>(ints(segments + 1) + ints(counts.most + 1) +
                                  (counts.most + 1) * kChannelBlock) *
         sizeof(float);
}

Index16 index_at(const EntryCounts& counts, Index segments, void* memory) {
  auto* const at = static_cast<std::int32_t*>(memory);
  std::int32_t* const offset = at + ints(segments + 1);
  return {.segment = at,
          .offset = offset,
          .value = reinterpret_cast<float*>(offset + ints(counts.most + 1))};
}

std::size_t index_scratch(const BlockSparseTiling& pass) {
  return static_cast<std::size_t>(ints(pass.counts.columns) + ints(pass.segments())) *
         sizeof(std::int32_t);
}

void make_index(const BlockSparseTiling& pass, const BlockSparseView& w, const Index16& out,
                void* scratch) {
  auto* const place = static_cast<std::int32_t*>(scratch);
  std::int32_t* const next = place + ints(pass.counts.columns);
  count_segments(pass, w, out, place, next);
  const Index entries = out.segment[pass.segments()];
  // A kernel may load the entry after the last one but does not use its values.
  std::fill_n(out.offset + entries, pass.counts.most + 1 - entries, 0);
  std::fill_n(out.value + entries * kChannelBlock, (pass.counts.most + 1 - entries) * kChannelBlock,
              0.0f);
  const bool whole = w.block_rows % kChannelBlock == 0;
  if (!whole) std::fill_n(out.value, entries * kChannelBlock, 0.0f);
  const auto* const values = static_cast<const float*>(w.values);
  for (Index k_block = 0; k_block < pass.counts.k_blocks; ++k_block) {
    mark(pass, w, k_block, place);
    place_entries(pass, k_block, out, place, next);
    for_each_block(pass.z, w, k_block, [&](Index b, Index first, Index begin, Index end) {
      for (Index i = 0; i < w.block_columns; ++i) {
        float* const to = out.value + place[w.columns[b] * w.block_columns + i] * kChannelBlock;
        const float* const from = values + b * w.block_rows * w.block_columns + i;
        for (Index row = begin; row < end; ++row) {
          to[row % kChannelBlock] = from[(row - first) * w.block_columns];
        }
      }
    });
  }
}

void make_places(const BlockSparseTiling& pass, const BlockSparseView& w, const Index16& out,
                 std::int32_t* places, void* scratch) {
  auto* const place = static_cast<std::int32_t*>(scratch);
  std::int32_t* const next = place + ints(pass.counts.columns);
  count_segments(pass, w, out, place, next);
  for (Index k_block = 0; k_block < pass.counts.k_blocks; ++k_block) {
    std::int32_t* const here = places + k_block * pass.counts.columns;
    mark(pass, w, k_block, here);
    place_entries(pass, k_block, out, here, next);
  }
}

}  // namespace convscope::block_sparse
