// SPDX-License-Identifier: Apache-2.0
// map_rows.cuh: does what map.cuh does for several small tensors in one launch, such as all weights
// of a network:
// y[r][i] = op(a[r][i], b[r][i], ...).
//
//   MapRows<2> rows;
//   rows.add({{a, keep}, y, count});    // up to kMaxMapRows
//   map_rows(Mul{}, rows);
//
// A null operand counts as zeros. y may be one of the operands, as in map.cuh.
#pragma once

#include "framework/cuda/launch.cuh"

namespace convscope {

inline constexpr int kMaxMapRows = 24;

template <int kInputs>
struct MapRow {
  const float* in[kInputs];
  float* out;
  std::int64_t count;
  unsigned first_block = 0;
};

template <int kInputs>
struct MapRows {
  MapRow<kInputs> row[kMaxMapRows];
  int rows = 0;
  unsigned blocks = 0;

  void add(const MapRow<kInputs>& given) {
    constexpr std::int64_t kOfBlock = 4 * kThreads;  // four elements per thread
    const std::int64_t most = std::int64_t{cuda_device_facts().multiprocessors} * 16;
    const std::int64_t wanted = ceil_div(given.count, kOfBlock);
    row[rows] = given;
    row[rows].first_block = blocks;
    blocks += static_cast<unsigned>(wanted < most ? wanted : most);
    ++rows;
  }
};

template <int kInputs, class Op>
__global__ void __launch_bounds__(kThreads)
    map_rows_kernel(Op op, const __grid_constant__ MapRows<kInputs> z) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  int r = 0;
  while (r + 1 < z.rows && blockIdx.x >= z.row[r + 1].first_block) ++r;
  const MapRow<kInputs>& row = z.row[r];
  const unsigned end = r + 1 < z.rows ? z.row[r + 1].first_block : z.blocks;
  const std::int64_t step = std::int64_t{end - row.first_block} * kThreads;
  std::int64_t i = std::int64_t{blockIdx.x - row.first_block} * kThreads + threadIdx.x;
  for (; i < row.count; i += 4 * step) {
    float operands[4][kInputs];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const std::int64_t at = i + u * step;
#pragma unroll
      for (int k = 0; k < kInputs; ++k) {
        operands[u][k] = at < row.count && row.in[k] != nullptr ? row.in[k][at] : 0.0f;
      }
    }
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const std::int64_t at = i + u * step;
      if (at < row.count) row.out[at] = op(operands[u]);
    }
  }
}

template <int kInputs, class Op>
void map_rows(const Op& op, const MapRows<kInputs>& rows) {
  launch(map_rows_kernel<kInputs, Op>,
         {.grid = dim3(rows.blocks), .block = dim3(kThreads), .overlaps_previous = true}, op, rows);
}

}  // namespace convscope
