// SPDX-License-Identifier: Apache-2.0
// block_sparse_index.h: sorts block-sparse weights into the order in which a kernel reads them.
//
// Blocks of all shapes become entries of 16 output channels. Blocks of fewer rows leave zeros in
// them: at density d, blocks of B rows fill the share 1 - (1 - d)^(16 / B) of all entries.
#pragma once

#include <cstddef>

#include "layers/conv2d/block_sparse/cpu/block_sparse_plan.h"

namespace convscope::block_sparse {

// The arrays of an index in one buffer.
struct Index16 {
  std::int32_t* segment = nullptr;  // [segments + 1] where the entries of each segment begin
  std::int32_t* offset = nullptr;   // [most + 1]
  float* value = nullptr;           // [most + 1, 16]
};
std::size_t index_bytes(const EntryCounts& counts, Index segments);
Index16 index_at(const EntryCounts& counts, Index segments, void* memory);

// Makes the index of forward or backward_data. Scratch: `index_scratch` bytes.
std::size_t index_scratch(const Pass& pass);
void make_index(const Pass& pass, const BlockSparseView& w, const Index16& out, void* scratch);

// Makes the index of backward_weight: places[k block, columns] are the entries of the matrix'
// columns, -1: none. Entries are those of a forward pass with one chunk, without values.
void make_places(const Pass& pass, const BlockSparseView& w, const Index16& out,
                 std::int32_t* places, void* scratch);

}  // namespace convscope::block_sparse
