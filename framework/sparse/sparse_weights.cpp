// SPDX-License-Identifier: Apache-2.0
// sparse_weights.cpp: stores the pruned weight of a convolution or linear layer as blocks.
#include "framework/sparse/sparse_weights.h"

#include <algorithm>

#include "framework/parallel.h"

namespace convscope {

constinit KernelSlot<void(const KeptBlocksCopy&)> gather_blocks_kernel{"gather_blocks"};
constinit KernelSlot<void(const KeptBlocksCopy&, bool)> scatter_blocks_kernel{"scatter_blocks"};

namespace {

Tensor index_tensor(const std::vector<std::int32_t>& values, Device device) {
  Tensor out = Tensor::empty({static_cast<std::int64_t>(values.size())}, DType::i32);
  std::copy(values.begin(), values.end(), out.data<std::int32_t>());
  return out.to(device);
}

constexpr std::int64_t kRows = 4;  // rows of the dense matrix, processed together

// Processes up to kRows rows of the dense matrix at a time: calls begin(index of the first element,
// number of elements), then visit(dense index, stored index) for each kept element. Threads process
// different block rows.
template <class Begin, class Visit>
void for_each_element(const KeptBlocksCopy& z, const Begin& begin, const Visit& visit) {
  const std::int64_t height = z.at.block_rows, width = z.at.block_columns;
  parallel_for(z.rows / height, 1, [&](std::int64_t row, std::int64_t) {
    for (std::int64_t i = 0; i < height; i += kRows) {
      const std::int64_t rows = std::min(kRows, height - i);
      const std::int64_t first = (row * height + i) * z.columns;
      begin(first, rows * z.columns);
      for (std::int64_t b = z.at.row_begin[row]; b < z.at.row_begin[row + 1]; ++b) {
        const std::int64_t dense = first + z.at.columns[b] * width;
        const std::int64_t stored = (b * height + i) * width;
        if (rows == kRows && width == 1) {  // loops of constant length
          for (std::int64_t r = 0; r < kRows; ++r) visit(dense + r * z.columns, stored + r);
          continue;
        }
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t j = 0; j < width; ++j) {
            visit(dense + r * z.columns + j, stored + r * width + j);
          }
        }
      }
    }
  });
}

template <class T>
void gather_from(const KeptBlocksCopy& z, const T* from, T* to) {
  for_each_element(
      z, [](std::int64_t, std::int64_t) {},
      [=](std::int64_t dense, std::int64_t stored) { to[stored] = from[dense]; });
}

void gather_blocks(const KeptBlocksCopy& z) { gather_from(z, z.from, z.to); }

void scatter_blocks(const KeptBlocksCopy& z, bool accumulate) {
  for_each_element(
      z,
      [=, to = z.to](std::int64_t first, std::int64_t count) {
        if (!accumulate) std::fill_n(to + first, count, 0.0f);
      },
      [from = z.from, to = z.to](std::int64_t dense, std::int64_t stored) {
        to[dense] += from[stored];
      });
}

}  // namespace

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
  // A mask on a GPU is always read again, because code that loads tensors into the mask does not
  // call mask_changed().
  const bool on_cpu = keep_.device().type == DeviceType::cpu;
  if (!obstacle_.empty() || (on_cpu && is_current())) return;
  const char* const operation = keep_.rank() == 2 ? "linear" : "conv2d";
  const Tensor on_host = keep_.to(Device{});
  const float* const keep = on_host.data<float>();
  const std::int64_t across = columns_ / format_.block_columns;
  const std::int64_t down = rows_ / format_.block_rows;
  std::vector<std::int32_t> row_begin{0}, block_column;
  std::vector<float> seen;
  for (std::int64_t row = 0; row < down; ++row) {
    for (std::int64_t column = 0; column < across; ++column) {
      const float* const block =
          keep + row * format_.block_rows * columns_ + column * format_.block_columns;
      seen.push_back(block[0]);
      for (std::int64_t i = 0; i < format_.block_rows; ++i) {
        for (std::int64_t j = 0; j < format_.block_columns; ++j) {
          CONVSCOPE_CHECK(block[i * columns_ + j] == block[0], operation,
                          "expected a mask of whole ", format_.block_rows, "x",
                          format_.block_columns,
                          " blocks because the layer is executed from block-sparse weights, got "
                          "one that keeps a part of block ",
                          column, " in row ", row, " of blocks");
        }
      }
      if (block[0] != 0) block_column.push_back(static_cast<std::int32_t>(column));
    }
    row_begin.push_back(static_cast<std::int32_t>(block_column.size()));
  }
  changed_ = false;
  if (seen == seen_) return;
  seen_ = std::move(seen);
  format_.blocks = static_cast<std::int64_t>(block_column.size());
  // Makes new tensors, because an existing compiled step may still use the current ones.
  row_begin_ = index_tensor(row_begin, keep_.device());
  block_column_ = index_tensor(block_column, keep_.device());
  ++version_;
}

bool SparseWeights::is_current() const {
  if (!obstacle_.empty()) return true;
  if (keep_.device().type != DeviceType::cpu) return !changed_ && !seen_.empty();
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
          .row_begin = row_begin_.data<std::int32_t>(),
          .columns = block_column_.data<std::int32_t>(),
          .values = values};
}

void SparseWeights::gather(const float* w, float* values) const {
  gather_blocks_kernel.get(keep_.device())({.at = view(nullptr),
                                            .rows = rows_,
                                            .columns = columns_,
                                            .blocks = format_.blocks,
                                            .from = w,
                                            .to = values});
}

void SparseWeights::scatter(const float* values, float* dw, bool accumulate) const {
  scatter_blocks_kernel.get(keep_.device())({.at = view(nullptr),
                                             .rows = rows_,
                                             .columns = columns_,
                                             .blocks = format_.blocks,
                                             .from = values,
                                             .to = dw},
                                            accumulate);
}

CONVSCOPE_KERNEL(gather_blocks_kernel, cpu, gather_blocks)
CONVSCOPE_KERNEL(scatter_blocks_kernel, cpu, scatter_blocks)
}  // namespace convscope
