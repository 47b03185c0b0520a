// SPDX-License-Identifier: Apache-2.0
// conv2d_chain.h: finds consecutive convolutions in a compiled step, each with its activation and
// 2x2 max-pool, and replaces them by one operation. The fusions decide which layers may be joined
// and which kernel runs then:
//
//   lanes_chain.cpp         samples in the vector lanes
//   few_channel_chain.cpp   one GPU kernel for two layers
//
// A chain replaces a layer when the layer's policy, in each direction that runs, is `auto` or the
// chain's algorithm. When the policy is a list, only the list's entry that was chosen counts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/conv2d/conv2d_op.h"
#include "layers/plan/pointwise_op.h"

namespace convscope {

// [pointwise] -> convolution [-> activation] [-> 2x2 max-pool].
struct ChainLink {
  PointwiseOp* before = nullptr;  // an operation on the convolution's input, such as its quantiser
  Conv2dOp* conv = nullptr;       // null: there is no link
  enum class Activation { none, relu, tanh } activation = Activation::none;
  bool pools = false;
  std::vector<Operation*> ops;  // the operations of the link, in order

  ValueId input() const { return ops.front()->inputs[0]; }
  ValueId output() const { return ops.back()->output(); }
};

struct ChainRules {
  const char* algorithm;         // the algorithm whose layers the chain may replace; null: none
  bool takes_pointwise = false;  // whether a pointwise operation may precede a convolution
  bool takes_tanh = false;       // whether tanh is accepted; ReLU always is
  bool (*accepts)(const Graph& graph, const ChainLink& link);
};

// Returns the link that begins with `op`; its conv is null when there is none.
CONVSCOPE_API ChainLink chain_link(const Graph& graph, Operation* op, const ChainRules& rules);
// Returns at most `most` consecutive links, the first of which begins with `op`.
CONVSCOPE_API std::vector<ChainLink> chain_from(const Graph& graph, Operation* op,
                                                const ChainRules& rules, std::size_t most);
// Replaces all links by the operation `joined` (Graph::replace). Returns the replaced operations.
CONVSCOPE_API std::vector<std::unique_ptr<Operation>> replace_chain(
    Graph& graph, const std::vector<ChainLink>& links, std::unique_ptr<Operation> joined);
struct ChainLayer {
  std::string name;
  double flops;  // of each direction
};
// Returns one entry for each layer of the chain and each direction that runs. Each entry names the
// chain and all its layers, as in "lanes_chain: c1+c2".
CONVSCOPE_API std::vector<RanKernel> chain_kernels(const Graph& graph, const std::string& name,
                                                   const std::vector<ChainLayer>& layers,
                                                   bool wants_dx, ImageLayouts layout = {});

}  // namespace convscope
