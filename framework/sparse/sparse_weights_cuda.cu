// SPDX-License-Identifier: Apache-2.0
// sparse_weights_cuda.cu: copies between a dense weight and its stored blocks on a GPU. The x index
// of the grid is a block row, and each thread copies one element. Memory bandwidth limits the
// copies.
// Read next  sparse_weights.cpp, the CPU implementation
#include <algorithm>

#include "framework/cuda/launch.cuh"
#include "framework/sparse/sparse_weights.h"

namespace convscope {
namespace {

// Calls visit(index in the dense matrix, index in the stored values) for each kept element.
template <class Visit>
__device__ inline void for_each_element(const KeptBlocksCopy& z, const Visit& visit) {
  const auto height = static_cast<int>(z.at.block_rows);
  const auto width = static_cast<int>(z.at.block_columns);
  const std::int64_t row = blockIdx.x;
  const std::int64_t begin = static_cast<std::int64_t>(z.at.row_begin[row]) * height * width;
  const std::int64_t end = static_cast<std::int64_t>(z.at.row_begin[row + 1]) * height * width;
  const std::int64_t first = begin + static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  for (std::int64_t i = first; i < end; i += static_cast<std::int64_t>(gridDim.y) * kThreads) {
    const std::int64_t block = i / (height * width);
    const auto inside = static_cast<int>(i - block * (height * width));
    visit(
        (row * height + inside / width) * z.columns + z.at.columns[block] * width + inside % width,
        i);
  }
}

__global__ void gather_blocks_kernel_cuda(const __grid_constant__ KeptBlocksCopy z) {
  for_each_element(z,
                   [&](std::int64_t dense, std::int64_t stored) { z.to[stored] = z.from[dense]; });
}

__global__ void scatter_blocks_kernel_cuda(const __grid_constant__ KeptBlocksCopy z,
                                           bool accumulate) {
  for_each_element(z, [&](std::int64_t dense, std::int64_t stored) {
    z.to[dense] = (accumulate ? z.to[dense] : 0.0f) + z.from[stored];
  });
}

// Returns a launch with a thread for each element of a block row, at most 64 thread blocks for each
// block row.
LaunchShape shape_of(const KeptBlocksCopy& z) {
  const std::int64_t rows = z.rows / z.at.block_rows;
  const std::int64_t elements = z.blocks * z.at.block_rows * z.at.block_columns;
  const std::int64_t blocks = ceil_div(elements, std::max<std::int64_t>(1, rows) * kThreads);
  return {.grid = dim3(static_cast<unsigned>(rows),
                       static_cast<unsigned>(std::clamp<std::int64_t>(blocks, 1, 64))),
          .block = dim3(kThreads)};
}

void gather_blocks(const KeptBlocksCopy& z) { launch(gather_blocks_kernel_cuda, shape_of(z), z); }

void scatter_blocks(const KeptBlocksCopy& z, bool accumulate) {
  if (!accumulate) {
    CONVSCOPE_CUDA(cudaMemsetAsync(
        z.to, 0, static_cast<std::size_t>(z.rows * z.columns) * sizeof(float), cuda_stream()));
  }
  launch(scatter_blocks_kernel_cuda, shape_of(z), z, accumulate);
}

}  // namespace
CONVSCOPE_KERNEL(gather_blocks_kernel, cuda, gather_blocks)
CONVSCOPE_KERNEL(scatter_blocks_kernel, cuda, scatter_blocks)
}  // namespace convscope
