// SPDX-License-Identifier: Apache-2.0
// round_weights_cpu.cpp: rounds all weights, or the weights of some blocks, to codes. Rows are
// divided among threads.
#include "framework/parallel.h"
#include "quant/integer/round_weights.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const IntegerGrid&, const Tensor&)>
    round_weights_kernel{"round_weights"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const IntegerGrid&, const BlockSparseView&,
                          const Tensor&)>
    round_blocks_kernel{"round_blocks"};

namespace {

void round_cpu(const Tensor& w, const Tensor& steps, const IntegerGrid& grid, const Tensor& codes) {
  const std::int64_t rows = codes.shape()[0], inner = codes.numel() / rows;
  const auto low = static_cast<float>(-grid.qn), high = static_cast<float>(grid.qp);
  const float* const from = w.data<float>();
  std::int8_t* const to = codes.data<std::int8_t>();
  parallel_for(rows, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const auto s = static_cast<float>(steps.data<double>()[steps.numel() > 1 ? k : 0]);
      for (std::int64_t i = k * inner; i < (k + 1) * inner; ++i) {
        to[i] = static_cast<std::int8_t>(code_of(from[i], s, low, high));
      }
    }
  });
}

void round_blocks_cpu(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                      const BlockSparseView& at, const Tensor& codes) {
  const std::int64_t rows = w.shape()[0], columns = w.numel() / rows;
  const auto low = static_cast<float>(-grid.qn), high = static_cast<float>(grid.qp);
  std::int8_t* const to = codes.data<std::int8_t>();
  parallel_for(rows, 8, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const auto s = static_cast<float>(steps.data<double>()[steps.numel() > 1 ? k : 0]);
      const float* const from = w.data<float>() + k * columns;
      const std::int64_t row = k / at.block_rows;
      for (std::int64_t b = at.row_begin[row]; b < at.row_begin[row + 1]; ++b) {
        const std::int64_t stored = (b * at.block_rows + k % at.block_rows) * at.block_columns;
        for (std::int64_t i = 0; i < at.block_columns; ++i) {
          to[stored + i] = static_cast<std::int8_t>(
              code_of(from[at.columns[b] * at.block_columns + i], s, low, high));
        }
      }
    }
  });
}

}  // namespace
CONVSCOPE_KERNEL(round_weights_kernel, cpu, round_cpu)
CONVSCOPE_KERNEL(round_blocks_kernel, cpu, round_blocks_cpu)
}  // namespace convscope
