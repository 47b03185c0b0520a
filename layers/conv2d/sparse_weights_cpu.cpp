// SPDX-License-Identifier: Apache-2.0
// sparse_weights_cpu.cpp: copies between a dense weight and its stored blocks, rows of blocks in
// parallel; bound by memory.
#include <algorithm>

#include "framework/parallel.h"
#include "layers/conv2d/sparse_weights.h"

namespace convscope {
namespace {

// Calls visit(element of the dense matrix, stored element, elements side by side).
template <class Visit>
void for_each_row(const KeptBlocksCopy& z, const Visit& visit) {
  const std::int64_t height = z.at.block_rows, width = z.at.block_columns;
  parallel_for(z.rows / height, 1, [&](std::int64_t row, std::int64_t) {
    for (std::int32_t b = z.at.row_begin[row]; b < z.at.row_begin[row + 1]; ++b) {
      const std::int64_t first = row * height * z.columns + z.at.columns[b] * width;
      for (std::int64_t i = 0; i < height; ++i) {
        visit(first + i * z.columns, (b * height + i) * width, width);
      }
    }
  });
}

void gather_blocks(const KeptBlocksCopy& z) {
  for_each_row(z, [&](std::int64_t dense, std::int64_t stored, std::int64_t count) {
    std::copy_n(z.from + dense, count, z.to + stored);
  });
}

void scatter_blocks(const KeptBlocksCopy& z, bool accumulate) {
  if (!accumulate) std::fill_n(z.to, z.rows * z.columns, 0.0f);
  for_each_row(z, [&](std::int64_t dense, std::int64_t stored, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
      z.to[dense + j] = (accumulate ? z.to[dense + j] : 0.0f) + z.from[stored + j];
    }
  });
}

}  // namespace
CONVSCOPE_KERNEL(gather_blocks_kernel, cpu, gather_blocks)
CONVSCOPE_KERNEL(scatter_blocks_kernel, cpu, scatter_blocks)
}  // namespace convscope
