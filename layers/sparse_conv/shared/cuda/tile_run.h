// SPDX-License-Identifier: Apache-2.0
// tile_run.h: code that `implicit_gemm` and `split_mask` share on CUDA. It runs a whole call, with
// one table of tiles for all taps or with one table for each half of the taps. The header has no
// CUDA code.
#pragma once

#include "layers/sparse_conv/algorithm.h"
#include "layers/sparse_conv/shared/cuda/tile_table.h"

namespace convscope::sparse_cuda {

struct SumsCall {
  const SparseConvProblem& problem;
  Direction direction;
  const void *in, *w, *b;
  void *out, *workspace;
};

// Computes the result. With `split`, the taps are cut into two parts: the sums over the first part
// are stored in the workspace, and the sums over the second part are added to them.
void run_sums(const SumsCall& call, bool split);
void run_weights(const SparseConvBackwardWeightArgs& args, bool split);
std::size_t tile_workspace_bytes(const SparseConvProblem& z, Direction direction, bool split);
Support tile_support(const SparseConvProblem& z, Direction direction, bool split);
Cost tile_cost(const SparseConvProblem& z, Direction direction, bool split);

}  // namespace convscope::sparse_cuda
