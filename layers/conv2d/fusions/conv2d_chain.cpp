// SPDX-License-Identifier: Apache-2.0
// conv2d_chain.cpp: finds consecutive convolutions in a compiled step, each with its activation and
// 2x2 max-pool, and replaces them by one operation.
#include "layers/conv2d/fusions/conv2d_chain.h"

#include <algorithm>

#include "layers/plan/fused_relu.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {
namespace {

// Returns whether a chain of `algorithm` may replace the layer: in no needed direction does the
// policy name another algorithm. When the policy is a list, only the list's entry that was chosen
// counts.
bool is_open(const Conv2dOp& conv, const char* algorithm) {
  return std::all_of(std::begin(kDirections), std::end(kDirections), [&](Direction direction) {
    const Conv2dChoice& choice = conv.choice(direction);
    return choice.algorithm == nullptr || choice.word == "auto" ||
           (algorithm != nullptr && choice.word == algorithm);
  });
}

}  // namespace

ChainLink chain_link(const Graph& graph, Operation* op, const ChainRules& rules) {
  ChainLink link;
  if (auto* const pointwise = dynamic_cast<PointwiseOp*>(op)) {
    Operation* const reader = graph.only_reader(op->output());
    // A pointwise operation may precede a weight instead.
    if (!rules.takes_pointwise || reader == nullptr || reader->inputs[0] != op->output()) {
      return {};
    }
    for (std::size_t i = 1; i < op->inputs.size(); ++i) {
      if (graph.shape(op->inputs[i]).numel() != 1) return {};
    }
    link.before = pointwise;
    link.ops.push_back(op);
    op = reader;
  }
  auto* const conv = as<Conv2dOp>(op);
  if (conv == nullptr || !conv->is_plain() || conv->prefers_nchw16c() ||
      !is_open(*conv, rules.algorithm)) {
    return {};
  }
  // Chains compute the gradients of a weight and its bias together.
  const ValueId bias = conv->bias();
  if (graph.training() &&
      !(graph.wants_gradient(conv->weight()) && (bias == kNoValue || graph.wants_gradient(bias)))) {
    return {};
  }
  link.conv = conv;
  link.activation = conv->relu() ? ChainLink::Activation::relu : ChainLink::Activation::none;
  link.ops.push_back(op);
  Operation* next = graph.only_reader(op->output());
  if (next != nullptr && rules.takes_tanh && !conv->relu() && next->kind() == "tanh") {
    link.activation = ChainLink::Activation::tanh;
    link.ops.push_back(next);
    next = graph.only_reader(next->output());
  }
  const auto* const pool = as<MaxPool>(next);
  if (pool != nullptr && pool->window().halves()) {
    link.pools = true;
    link.ops.push_back(next);
  }
  return rules.accepts(graph, link) ? link : ChainLink{};
}

std::vector<ChainLink> chain_from(const Graph& graph, Operation* op, const ChainRules& rules,
                                  std::size_t most) {
  std::vector<ChainLink> links;
  while (op != nullptr && links.size() < most) {
    const ChainLink link = chain_link(graph, op, rules);
    if (link.conv == nullptr) break;
    links.push_back(link);
    op = graph.only_reader(link.ops.back()->output());
  }
  return links;
}

std::vector<std::unique_ptr<Operation>> replace_chain(Graph& graph,
                                                      const std::vector<ChainLink>& links,
                                                      std::unique_ptr<Operation> joined) {
  joined->layer = links.front().conv->layer;
  std::vector<Operation*> chain;
  for (const ChainLink& link : links) chain.insert(chain.end(), link.ops.begin(), link.ops.end());
  return graph.replace(chain, std::move(joined));
}

std::vector<RanKernel> chain_kernels(const Graph& graph, const std::string& name,
                                     const std::vector<ChainLayer>& layers, bool wants_dx,
                                     ImageLayouts layout) {
  std::string kernel = name + ":";
  for (std::size_t i = 0; i < layers.size(); ++i) kernel += (i == 0 ? " " : "+") + layers[i].name;
  std::vector<RanKernel> out;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto add = [&](Direction direction) {
      out.push_back({.layer = layers[i].name,
                     .direction = direction,
                     .kernel = kernel,
                     .layout = layout,
                     .flops = layers[i].flops});
    };
    add(Direction::forward);
    if (!graph.training()) continue;
    if (i > 0 || wants_dx) add(Direction::backward_data);
    add(Direction::backward_weight);
  }
  return out;
}

}  // namespace convscope
