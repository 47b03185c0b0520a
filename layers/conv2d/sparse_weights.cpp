// SPDX-License-Identifier: Apache-2.0
// sparse_weights.cpp: the pruned weight of a convolution as blocks.
#include "layers/conv2d/sparse_weights.h"

#include <algorithm>

#include "framework/parallel.h"

namespace convscope {

SparseWeights::SparseWeights(Tensor keep, std::int64_t block_rows, std::int64_t block_columns,
                             bool dense_gradient)
    : keep_(std::move(keep)),
      dense_gradient_(dense_gradient),
      rows_(keep_.dim(0)),
      columns_(keep_.numel() / std::max<std::int64_t>(1, keep_.dim(0))) {
  format_ = {.kind = WeightFormat::Kind::block_sparse,
             .block_rows = block_rows,
             .block_columns = block_columns,
             .blocks = 0};
  if (!format_.misfit(rows_, columns_).empty()) {
    obstacle_ = cat("blocks of ", block_rows, "x", block_columns, " do not divide its ", rows_, "x",
                    columns_, " matrix of weights");
  }
}

void SparseWeights::refresh() {
  if (!obstacle_.empty() || (!seen_.empty() && is_current())) return;
  const float* const keep = keep_.data<float>();
  const std::int64_t across = columns_ / format_.block_columns;
  const std::int64_t down = rows_ / format_.block_rows;
  row_begin_.assign(1, 0);
  block_column_.clear();
  seen_.clear();
  for (std::int64_t row = 0; row < down; ++row) {
    for (std::int64_t column = 0; column < across; ++column) {
      const float* const block =
          keep + row * format_.block_rows * columns_ + column * format_.block_columns;
      seen_.push_back(block[0]);
      for (std::int64_t i = 0; i < format_.block_rows; ++i) {
        for (std::int64_t j = 0; j < format_.block_columns; ++j) {
          CONVSCOPE_CHECK(block[i * columns_ + j] == block[0], "conv2d",
                          "expected a mask of whole ", format_.block_rows, "x",
                          format_.block_columns,
                          " blocks because the layer is executed from block-sparse weights, got "
                          "one that keeps a part of block ",
                          column, " in row ", row, " of blocks");
        }
      }
      if (block[0] != 0) block_column_.push_back(static_cast<std::int32_t>(column));
    }
    row_begin_.push_back(static_cast<std::int32_t>(block_column_.size()));
  }
  format_.blocks = static_cast<std::int64_t>(block_column_.size());
  ++version_;
}

bool SparseWeights::is_current() const {
  if (!obstacle_.empty()) return true;
  const float* const keep = keep_.data<float>();
  const std::int64_t across = columns_ / format_.block_columns;
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    if (keep[at / across * format_.block_rows * columns_ + at % across * format_.block_columns] !=
        seen_[i]) {
      return false;
    }
  }
  return !seen_.empty();
}

double SparseWeights::density() const {
  return static_cast<double>(format_.stored_elements()) /
         static_cast<double>(std::max<std::int64_t>(1, rows_ * columns_));
}

BlockSparseView SparseWeights::view(const void* values) const {
  return {.block_rows = format_.block_rows,
          .block_columns = format_.block_columns,
          .row_begin = row_begin_.data(),
          .columns = block_column_.data(),
          .values = values};
}

// Calls visit(element of the dense matrix, stored element, elements side by side).
template <class Visit>
void SparseWeights::for_each_row(const Visit& visit) const {
  parallel_for(rows_ / format_.block_rows, 1, [&](std::int64_t row, std::int64_t) {
    for (std::int32_t b = row_begin_[static_cast<std::size_t>(row)];
         b < row_begin_[static_cast<std::size_t>(row) + 1]; ++b) {
      const std::int64_t first = row * format_.block_rows * columns_ +
                                 block_column_[static_cast<std::size_t>(b)] * format_.block_columns;
      for (std::int64_t i = 0; i < format_.block_rows; ++i) {
        visit(first + i * columns_, (b * format_.block_rows + i) * format_.block_columns);
      }
    }
  });
}

void SparseWeights::gather(const float* w, float* values) const {
  for_each_row([&](std::int64_t dense, std::int64_t stored) {
    std::copy_n(w + dense, format_.block_columns, values + stored);
  });
}

void SparseWeights::scatter(const float* values, float* dw, bool accumulate) const {
  if (!accumulate) std::fill_n(dw, rows_ * columns_, 0.0f);
  for_each_row([&](std::int64_t dense, std::int64_t stored) {
    for (std::int64_t j = 0; j < format_.block_columns; ++j) {
      dw[dense + j] = (accumulate ? dw[dense + j] : 0.0f) + values[stored + j];
    }
  });
}

}  // namespace convscope
