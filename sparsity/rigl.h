// SPDX-License-Identifier: Apache-2.0
// rigl.h: sparse from the first step: the number of weights of each layer stays, which ones they
// are changes.
//
// Textbook    drop the d weakest |w| of those that take part
//             grow the d with the largest |dL/dw| among all others, those just dropped included
//             a grown weight starts from 0, so that the network's output does not jump; a weight
//             dropped and grown in the same update goes on as it was
// Source      U. Evci, T. Gale, J. Menick, P. S. Castro, E. Elsen: Rigging the Lottery, ICML 2020,
//             arXiv 1911.11134
#pragma once

#include <vector>

#include "framework/tensor.h"

namespace convscope {

// Changes `keep` and `w` in place; `gradient` is that of all weights, as if none were out. All on
// the CPU, f32, same size. Exactly `count` weights change places, or fewer when there are not that
// many on both sides. Returns which were out before and are in now.
CONVSCOPE_API std::vector<std::int64_t> drop_and_grow(const Tensor& keep, const Tensor& w,
                                                      const Tensor& gradient, std::int64_t count);

// Strengths of a random choice: one uniform number for each weight, from (seed, layer).
CONVSCOPE_API std::vector<float> random_strengths(std::int64_t count, std::uint64_t seed,
                                                  std::uint64_t layer);

}  // namespace convscope
