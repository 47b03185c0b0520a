// SPDX-License-Identifier: Apache-2.0
// sparse_form.h: whether a planned step computes a direction of a pruned layer from the blocks that
// its mask keeps. A linear layer asks it, too: it is a convolution of images of one pixel.
#pragma once

#include <string>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/sparse_weights.h"
#include "layers/plan/plan_graph.h"

namespace convscope {

inline constexpr const char* kSparseCard = "block_sparse";
inline constexpr const char* kWantsDenseGradient = "pruned weights need their gradient";

struct SparseForm {
  const Conv2dAlgorithm* card = nullptr;  // null: the dense form runs
  std::string why_dense = {};  // then: "at density 0.45 block_sparse is estimated at ..."
  double ms = 0;               // what the card is estimated at, with the copies of a training step
};

// The card of the blocks where it takes them and is estimated to be faster than `dense_ms`.
// `problem` has dense weights.
CONVSCOPE_API SparseForm sparse_form(const SparseWeights& sparse, const Conv2dProblem& problem,
                                     Direction direction, Device device, WeightUse use,
                                     double dense_ms);

// Reads the mask. The plan is valid as long as the mask stays as it is.
CONVSCOPE_API void plan_with_mask(PlanGraph& graph, const Ref<SparseWeights>& sparse);

}  // namespace convscope
