// SPDX-License-Identifier: Apache-2.0
// sparse_form.h: decides whether a compiled step computes a direction of a pruned layer from the
// blocks that its mask keeps. Linear layers count as convolutions of images of one pixel.
#pragma once

#include <string>

#include "framework/graph/graph.h"
#include "framework/sparse/sparse_weights.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

inline constexpr const char* kSparseAlgorithm = "block_sparse";
inline constexpr const char* kWantsDenseGradient = "pruned weights need their gradient";

struct SparseForm {
  const Conv2dAlgorithm* algorithm = nullptr;  // null: the dense algorithm runs
  std::string why_dense = {};  // the reason: "at density 0.45 block_sparse is estimated at ..."
  double ms = 0;               // estimate of the algorithm, including the copies of a training step
};

// Returns the block-sparse algorithm where it supports the problem and is estimated to be faster
// than `dense_ms`. `problem` has dense weights.
CONVSCOPE_API SparseForm sparse_form(const SparseWeights& sparse, const Conv2dProblem& problem,
                                     Direction direction, Device device, WeightUse use,
                                     double dense_ms);

// Reads the mask. The plan is valid while the mask is unchanged.
CONVSCOPE_API void plan_with_mask(Graph& graph, const Ref<SparseWeights>& sparse);

}  // namespace convscope
