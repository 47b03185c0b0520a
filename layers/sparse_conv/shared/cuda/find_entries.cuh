// SPDX-License-Identifier: Apache-2.0
// find_entries.cuh: finds the neighbours of sites on the GPU, which is the first step of making a
// table.
#pragma once

#include "layers/sparse_conv/shared/cuda/tile_table.h"

namespace convscope::sparse_cuda {

// Returns the entries of a map (map.h) for the taps of `part`, on the current GPU. The result is
// i32 [rows of taps, sites of look.here], in the order of the sites. Does not wait for the GPU.
Tensor find_entries(const SparseLook& look, const SparseKernel& kernel, const PartTaps& part);

}  // namespace convscope::sparse_cuda
