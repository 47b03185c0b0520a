// SPDX-License-Identifier: Apache-2.0
// block_sparse_index.h: sorts block-sparse weights into the order in which a kernel reads them.
//
// The stored blocks, whatever their shape, are converted to entries. An entry is the 16 weights of
// 16 output channels for one (c,r,s). Blocks of fewer rows leave zeros in an entry. At density d,
// blocks of B rows need the share 1 - (1 - d)^(16 / B) of all entries.
#pragma once

#include <cstddef>

#include "layers/conv2d/block_sparse/cpu/block_sparse_plan.h"

namespace convscope::block_sparse {

// The arrays of an index, stored in one buffer. `most` (EntryCounts) is the largest possible number
// of entries.
struct Index16 {
  std::int32_t* segment = nullptr;  // [segments + 1]: first entry of each segment
  std::int32_t* offset = nullptr;   // [most + 1]
  float* value = nullptr;           // [most + 1, 16]
};
std::size_t index_bytes(const EntryCounts& counts, Index segments);
Index16 index_at(const EntryCounts& counts, Index segments, void* memory);

// Builds the index of forward or backward_data; needs `index_scratch` bytes of scratch memory.
std::size_t index_scratch(const BlockSparseTiling& pass);
void make_index(const BlockSparseTiling& pass, const BlockSparseView& w, const Index16& out,
                void* scratch);

// Builds the index of backward_weight. places[k block, column] is the index of the entry for a
// column of the weight matrix, or -1. The entries are those of a forward pass with one chunk; their
// values are not stored.
void make_places(const BlockSparseTiling& pass, const BlockSparseView& w, const Index16& out,
                 std::int32_t* places, void* scratch);

}  // namespace convscope::block_sparse
