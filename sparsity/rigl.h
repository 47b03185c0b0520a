// SPDX-License-Identifier: Apache-2.0
// rigl.h: RigL, which trains a sparse network from the first training step. The number of kept
// weights of each layer is constant, but updates change which weights are kept.
//
// Textbook    drop the d weakest |w| of the kept weights
//             grow the d with the largest |dL/dw| among all others, including those just dropped
//             a grown weight starts from 0, so that the network's output does not jump; a weight
//             dropped and grown in the same update stays unchanged
// Source      U. Evci, T. Gale, J. Menick, P. S. Castro, E. Elsen: Rigging the Lottery, ICML 2020,
//             arXiv 1911.11134
#pragma once

#include <vector>

#include "framework/tensor.h"

namespace convscope {

// Changes `keep` and `w` in place. `gradient` is the gradient of all weights, also of pruned ones.
// All tensors are f32 on the CPU and have the same size. Drops `count` weights and grows as many,
// or fewer if there are fewer kept or fewer pruned weights. Returns the indices of the weights that
// were pruned before and are kept now.
CONVSCOPE_API std::vector<std::int64_t> drop_and_grow(const Tensor& keep, const Tensor& w,
                                                      const Tensor& gradient, std::int64_t count);

// Returns random strengths for `count` weights: uniform numbers that depend only on `seed` and
// `layer`.
CONVSCOPE_API std::vector<float> random_strengths(std::int64_t count, std::uint64_t seed,
                                                  std::uint64_t layer);

}  // namespace convscope
