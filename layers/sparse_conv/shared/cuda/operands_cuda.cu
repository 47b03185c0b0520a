// SPDX-License-Identifier: Apache-2.0
// operands_cuda.cu: starts the passes that pack operands.
#include <algorithm>

#include "layers/sparse_conv/shared/cuda/operands.cuh"
#include "layers/sparse_conv/shared/cuda/row_pack.cuh"

namespace convscope::sparse_cuda {

static_assert(kMaximaOfFactor == half_tiles::kMaximaBlocks);

void pack_operands(const Problem& z, const Workspace& at, const void* first, const void* second,
                  bool second_is_weights, bool backward, std::int64_t lanes,
                  const WeightTiles& tiles) {
  if (!at.first.packed && !at.second.packed) return;
  Pack pack;
  if (z.dtype == DType::f32) {
    const std::int64_t a = at.first.rows * at.first.width;
    const std::int64_t b =
        second_is_weights ? z.w_shape().numel() : at.second.rows * at.second.width;
    const int a_blocks = half_tiles::maxima_blocks(a), b_blocks = half_tiles::maxima_blocks(b);
    pack.maxima = {at.maxima, a_blocks};
    pack.other_maxima = {at.maxima + a_blocks, b_blocks};
    pack.unscale = at.unscale;
    launch(half_tiles::maxima_kernel<half_tiles::kMaximaThreads>,
           {.grid = dim3(static_cast<unsigned>(a_blocks + b_blocks)),
            .block = dim3(half_tiles::kMaximaThreads),
            .overlaps_previous = true},
           static_cast<const float*>(first), a, a_blocks, static_cast<const float*>(second), b,
           at.maxima);
  }
  unsigned jobs = 0;
  std::int64_t most = 1;
  const auto add = [&](const Factor& factor, const void* from, const half_tiles::Maxima& maxima,
                       bool weights) {
    if (!factor.packed) return;
    pack.jobs[jobs++] = {.from = from,
                         .to = factor.memory,
                         .plane = factor.plane(),
                         .rows = factor.rows,
                         .width = factor.width,
                         .pieces = factor.pieces,
                         .weights = weights,
                         .backward = backward,
                         .taps = static_cast<int>(z.taps()),
                         .lanes = static_cast<int>(lanes),
                         .maxima = maxima};
    if (weights && tiles.columns > 0) {
      PackJob& job = pack.jobs[jobs - 1];
      job.width = tiles.depth;
      job.tile_columns = tiles.columns;
      job.step_taps = tiles.step_taps;
      job.mirrored = tiles.mirrored;
    }
    most = std::max(most, factor.rows * factor.pieces);
  };
  add(at.first, first, pack.maxima, false);
  add(at.second, second, pack.other_maxima, second_is_weights);
  LaunchShape shape = overlapping(grid_for(most));
  shape.grid.y = jobs;
  if (z.dtype != DType::f32) {
    launch(pack_kernel<Float16, 1>, shape, pack);
  } else if (planes_of(z) == 2) {
    launch(pack_kernel<float, 2>, shape, pack);
  } else {
    launch(pack_kernel<float, 1>, shape, pack);
  }
}

}  // namespace convscope::sparse_cuda
