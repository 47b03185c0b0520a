// SPDX-License-Identifier: Apache-2.0
// weight_format.h: how the weights of an operator are stored. Every format describes the same
// matrix: rows are output channels, columns are all terms of one output (for a convolution
// [K, C/G R S]).
//
//   dense         all elements, row by row
//   block_sparse  the matrix is cut into blocks of rows x columns. Only the kept blocks are stored,
//                 with an index of their positions (block compressed sparse rows). A kernel skips
//                 the other blocks, which are 0.
//
//   row_begin [block rows + 1]   the blocks of block row i are row_begin[i] .. row_begin[i + 1]
//   columns   [blocks]           block column of each block, ascending in a block row
//   values    [blocks, rows, columns of a block]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

struct CONVSCOPE_API WeightFormat {
  enum class Kind : std::uint8_t { dense, block_sparse };
  Kind kind = Kind::dense;
  // Block sparse only:
  std::int64_t block_rows = 0, block_columns = 0;  // of one block
  std::int64_t blocks = 0;                         // kept blocks

  bool is_dense() const { return kind == Kind::dense; }
  std::int64_t stored_elements() const { return blocks * block_rows * block_columns; }

  std::string text() const;  // "dense", "blocks4x1:128": 128 blocks of 4 rows and 1 column
  static bool parse(std::string_view text, WeightFormat& out);  // false: malformed
  // Returns "" if a matrix of this size fits the format, else why not: "expects ..., got ...".
  std::string misfit(std::int64_t rows, std::int64_t columns) const;

  bool operator==(const WeightFormat&) const = default;
};

// The arrays of block-sparse weights. The values have the type of w.
struct BlockSparseView {
  std::int64_t block_rows = 0, block_columns = 0;  // of one block
  const std::int32_t* row_begin = nullptr;         // [rows / block_rows + 1]
  const std::int32_t* columns = nullptr;           // [blocks]
  const void* values = nullptr;                    // [blocks, block_rows, block_columns]

  bool defined() const { return row_begin != nullptr; }
};

}  // namespace convscope
