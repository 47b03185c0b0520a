// SPDX-License-Identifier: Apache-2.0
// linear_blocks.h: decides which directions of a pruned linear layer a compiled step computes from
// the blocks that its mask keeps. The layer's x [N,I] is N images of one pixel with I channels, so
// the algorithms of a 1x1 convolution can compute the layer.
#pragma once

#include <array>

#include "layers/plan/conv2d_calls.h"
#include "layers/plan/sparse_form.h"

namespace convscope {

class LinearBlocks {
 public:
  LinearBlocks() = default;  // no mask
  // Reads the mask of w. x and w are values of the graph.
  LinearBlocks(Graph& graph, ValueId x, ValueId w, MathMode math);

  bool run(Direction direction) const { return form(direction).algorithm != nullptr; }
  // Returns why the direction uses the dense weight, or "" if it uses the blocks or is not needed.
  const std::string& why_dense(Direction direction) const { return form(direction).why_dense; }
  Conv2dWork work(Direction direction) const;
  const Ref<SparseWeights>& sparse() const { return sparse_; }  // null: no mask

 private:
  const SparseForm& form(Direction direction) const {
    return forms_[static_cast<std::size_t>(direction)];
  }

  Ref<SparseWeights> sparse_;
  Conv2dProblem problem_;  // with dense weights
  std::array<SparseForm, 3> forms_;
};

}  // namespace convscope
