// SPDX-License-Identifier: Apache-2.0
// round_weights_cuda.cu: rounds all weights, or the weights of some blocks, to codes on a GPU. It
// runs only when weights have changed, so it is simple: a thread processes one number at a time.
#include "framework/cuda/launch.cuh"
#include "quant/integer/round_weights.h"

namespace convscope {
namespace {

__global__ void __launch_bounds__(kThreads)
    round_rows(const float* w, const double* steps, std::int64_t per_step, float low, float high,
               std::int64_t count, std::int8_t* codes) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const auto s = static_cast<float>(steps[i / per_step]);
    codes[i] = static_cast<std::int8_t>(static_cast<int>(code_of(w[i], s, low, high)));
  }
}

void round_cuda(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                const Tensor& codes) {
  launch(round_rows, grid_for(w.numel()), w.data<float>(), steps.data<double>(),
         w.numel() / steps.numel(), static_cast<float>(-grid.qn), static_cast<float>(grid.qp),
         w.numel(), codes.data<std::int8_t>());
}

// One thread block rounds one row of the matrix.
__global__ void __launch_bounds__(kThreads)
    round_kept_blocks(const float* w, const double* steps, bool per_row, std::int64_t columns,
                      float low, float high, const BlockSparseView at, std::int8_t* codes) {
  const auto height = static_cast<int>(at.block_rows), width = static_cast<int>(at.block_columns);
  const auto k = static_cast<int>(blockIdx.x);
  const auto s = static_cast<float>(steps[per_row ? k : 0]);
  const int first = at.row_begin[k / height], end = at.row_begin[k / height + 1];
  for (int i = static_cast<int>(threadIdx.x); i < (end - first) * width; i += kThreads) {
    const int block = first + i / width, column = i % width;
    codes[(static_cast<std::int64_t>(block) * height + k % height) * width + column] =
        static_cast<std::int8_t>(static_cast<int>(
            code_of(w[k * columns + static_cast<std::int64_t>(at.columns[block]) * width + column],
                    s, low, high)));
  }
}

void round_blocks_cuda(const Tensor& w, const Tensor& steps, const IntegerGrid& grid,
                       const BlockSparseView& at, const Tensor& codes) {
  const std::int64_t rows = w.shape()[0];
  launch(round_kept_blocks, {.grid = dim3(static_cast<unsigned>(rows)), .block = dim3(kThreads)},
         w.data<float>(), steps.data<double>(), steps.numel() > 1, w.numel() / rows,
         static_cast<float>(-grid.qn), static_cast<float>(grid.qp), at, codes.data<std::int8_t>());
}

}  // namespace
CONVSCOPE_KERNEL(round_blocks_kernel, cuda, round_blocks_cuda)
CONVSCOPE_KERNEL(round_weights_kernel, cuda, round_cuda)
}  // namespace convscope
