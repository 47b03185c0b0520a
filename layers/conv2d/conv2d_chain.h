// SPDX-License-Identifier: Apache-2.0
// conv2d_chain.h: finds convolutions that stand one behind the other in a planned step, each with
// its curve and its 2x2 max-pool, and puts one operation in their place. What may be joined, and
// what runs then, is said by those who have kernels for it:
//
//   batch_lanes/cpu/lanes_chain.cpp                 samples in the vector lanes
//   few_channel_chains/cuda/few_channel_chain_plan.cpp   one kernel for two layers
//
// A chain takes the place of layers whose policy is `auto`, or names the card that it is made of,
// in every direction that runs. Of a list of words the one counts that was taken.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/conv2d/conv2d_op.h"
#include "layers/plan/pointwise_op.h"

namespace convscope {

// [pointwise] -> convolution [-> curve] [-> 2x2 max-pool].
struct ChainLink {
  PointwiseOp* before = nullptr;  // on the convolution's input, such as its quantiser
  Conv2dOp* conv = nullptr;       // null: there is no link
  enum class Curve { none, relu, tanh } curve = Curve::none;
  bool pools = false;
  std::vector<PlanOp*> ops;  // all of them, in order

  ValueId input() const { return ops.front()->inputs[0]; }
  ValueId output() const { return ops.back()->output; }
};

struct ChainRules {
  const char* card;              // that the chain is made of; null: no card
  bool takes_pointwise = false;  // in front of a convolution
  bool takes_tanh = false;       // a ReLU it always takes
  bool (*accepts)(const PlanGraph& graph, const ChainLink& link);
};

// The link that begins with `op` (null: none does).
CONVSCOPE_API ChainLink chain_link(const PlanGraph& graph, PlanOp* op, const ChainRules& rules);
// The links that begin with `op` and follow each other, `most` of them.
CONVSCOPE_API std::vector<ChainLink> chain_from(const PlanGraph& graph, PlanOp* op,
                                                const ChainRules& rules, std::size_t most);
// `joined` takes the place of all of them. Its first input is that of the first link, followed by
// all other values that the links read. Returns the operations that it replaces.
CONVSCOPE_API std::vector<std::unique_ptr<PlanOp>> replace_chain(
    PlanGraph& graph, const std::vector<ChainLink>& links, std::unique_ptr<PlanOp> joined);
// Of all layers of the chain: `name` and the layers, "lanes_chain: c1+c2".
CONVSCOPE_API std::vector<RanKernel> chain_kernels(const PlanGraph& graph, const std::string& name,
                                                   const std::vector<std::string>& layers,
                                                   bool wants_dx);

}  // namespace convscope
