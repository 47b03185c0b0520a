// SPDX-License-Identifier: Apache-2.0
// row_pack.cuh: the operands of a product as pieces of eight fp16/bf16: rows of features and
// weights, with one or two 16-bit numbers for each element.
// Read next  layers/conv2d/shared/cuda/half_pieces.h: how f32 becomes two fp16 numbers
#pragma once

#include <cstdint>

#include "layers/conv2d/shared/cuda/half_pack.cuh"

namespace convscope::sparse_cuda {

using half_tiles::kPieceElements;

// A job packs rows [count, width] in their order, or weights [K,C,taps] as rows [taps, lanes, C].
// If tile_columns is not 0, the job writes weights in the layout of shared memory
// (matrix_tile.cuh): [tiles of lanes, steps of taps, columns] rows of 128 bytes, whose pieces are
// swizzled.
struct PackJob {
  const void* from = nullptr;
  uint4* to = nullptr;     // [planes][rows][pieces]
  std::int64_t plane = 0;  // pieces of one plane
  std::int64_t rows = 0;   // 0: no job
  int width = 0, pieces = 0;
  bool weights = false, backward = false;
  int taps = 1, lanes = 1;
  int tile_columns = 0, step_taps = 1;
  bool mirrored = false;
  half_tiles::Maxima maxima;
};

struct Pack {
  PackJob jobs[2];
  // The inputs of write_unscale: of both operands.
  half_tiles::Maxima maxima, other_maxima;
  float2* unscale = nullptr;
};

// Threads: pieces, of job y.
template <class In, int kPlanes>
__global__ __launch_bounds__(kThreads) void pack_kernel(const __grid_constant__ Pack z) {
  const PackJob& job = z.jobs[blockIdx.y];
  let_next_kernel_start();
  wait_for_previous_kernel();
  float scale = 1;
  if constexpr (sizeof(In) == 4) {
    scale = half_tiles::power_of_two(half_tiles::read_exponent(job.maxima));
    if (blockIdx.x + blockIdx.y == 0 && threadIdx.x < 32) half_tiles::write_unscale(z);
  }
  const In* const from = static_cast<const In*>(job.from);
  const std::int64_t count = job.rows * job.pieces;
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const std::int64_t row = i / job.pieces;
    const auto piece = static_cast<int>(i - row * job.pieces);
    std::int64_t first = row * job.width;
    std::int64_t step = 1;
    int depth = piece * kPieceElements;
    bool exists = true;
    if (job.weights) {  // row = (tap, lane)
      std::int64_t tap = row / job.lanes;
      std::int64_t lane = row - tap * job.lanes;
      if (job.tile_columns > 0) {
        const int column = static_cast<int>(row % job.tile_columns);
        const int steps = ceil_div(job.taps, job.step_taps);
        const std::int64_t tile = row / job.tile_columns;  // (tile of lanes, step)
        const int tap_pieces = job.pieces / job.step_taps;
        const int at = piece ^ (column & 7);
        tap = tile % steps * job.step_taps + at / tap_pieces;
        lane = tile / steps * job.tile_columns + column;
        depth = at % tap_pieces * kPieceElements;
        exists = tap < job.taps && lane < job.lanes;
        if (job.mirrored) tap = job.taps - 1 - tap;
      }
      first = job.backward ? lane * job.taps + tap : lane * job.width * job.taps + tap;
      step = job.backward ? static_cast<std::int64_t>(job.lanes) * job.taps : job.taps;
    }
    In values[kPieceElements];
#pragma unroll
    for (int e = 0; e < kPieceElements; ++e) {
      const int d = depth + e;
      values[e] = exists && d < job.width ? from[first + d * step] : In{};
    }
    half_tiles::write_piece<In, kPlanes>(values, scale, job.to + i, job.plane);
  }
}

}  // namespace convscope::sparse_cuda
