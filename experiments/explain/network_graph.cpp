// SPDX-License-Identifier: Apache-2.0
// network_graph.cpp: finds which results each layer reads, and writes them as a table.
#include "experiments/explain/network_graph.h"

#include <map>

#include "experiments/explain/overview.h"
#include "experiments/explain/text_layout.h"
#include "experiments/run_folder/layer_table.h"
#include "layers/layer_graph/layer_graph.h"
#include "layers/residual.h"

namespace convscope {
namespace {

class Walk {
 public:
  explicit Walk(const Explanation& explanation) : kernels_(explanation.steps[0].kernels) {
    for (const NamedModule& part : explanation.model->modules()) {
      names_.emplace(part.module, part.name);
    }
    nodes_.push_back(
        {.name = "input", .kind = "image", .inputs = {}, .shape = "", .algorithm = ""});
    nodes_[0].shape = explanation.input.str();
    pass(*explanation.model, {{.node = 0, .shape = explanation.input}});
  }
  std::vector<GraphNode> nodes_;

 private:
  struct Value {
    std::size_t node;
    Shape shape;
  };
  using Values = std::vector<Value>;

  Values pass(Module& module, const Values& inputs) {
    if (auto* const graph = dynamic_cast<LayerGraph*>(&module)) {
      return graph->pass(inputs, [&](const LayerGraph::Entry& entry, const Values& values) {
        return pass(*entry.layer, values);
      });
    }
    if (auto* const chain = dynamic_cast<Sequential*>(&module)) {
      Values values = inputs;
      for (std::size_t i = 0; i < chain->size(); ++i) values = pass(chain->layer(i), values);
      return values;
    }
    if (auto* const block = dynamic_cast<Residual*>(&module)) return pass_block(*block, inputs);
    Shapes shapes;
    for (const Value& input : inputs) shapes.push_back(input.shape);
    return add(module, names_.at(&module), module.kind(), inputs, module.output_shapes(shapes));
  }

  Values pass_block(Residual& block, const Values& inputs) {
    Values terms = pass(block.body(), inputs);
    terms.push_back(block.shortcut() != nullptr ? pass(*block.shortcut(), inputs)[0] : inputs[0]);
    const bool has_relu = block.end() == Residual::End::relu;
    return add(block, names_.at(&block), has_relu ? "add, relu" : "add", terms, {terms[0].shape});
  }

  Values add(const Module& module, const std::string& name, const std::string& kind,
             const Values& inputs, const Shapes& results) {
    GraphNode node{.name = name, .kind = kind, .inputs = {}, .shape = "", .algorithm = ""};
    for (const Value& input : inputs) node.inputs.push_back(input.node);
    Values out;
    for (const Shape& result : results) {
      node.shape += (out.empty() ? "" : " ") + result.str();
      out.push_back({.node = nodes_.size(), .shape = result});
    }
    node.mflop = forward_flops(module, inputs[0].shape) * 1e-6;
    if (const LayerKernel* const kernel = kernels_.find(name, Direction::forward)) {
      node.algorithm = kernel->kernel;
    }
    nodes_.push_back(std::move(node));
    return out;
  }

  const StepKernels& kernels_;
  std::map<const Module*, std::string> names_;
};

}  // namespace

std::vector<GraphNode> graph_nodes(const Explanation& explanation) {
  return std::move(Walk(explanation).nodes_);
}

// An input that is not the line above has its name in the column `from`, in a separate line.
std::string graph_text(const std::vector<GraphNode>& nodes) {
  std::vector<std::vector<std::string>> rows(
      1, {"layer", "kind", "from", "output", "MFLOP", "algorithm"});
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const GraphNode& node = nodes[i];
    rows.push_back({node.name, node.kind, "", node.shape,
                    node.mflop > 0 ? number_text("%.4g", node.mflop) : "",
                    short_kernel(node.algorithm, node.name)});
    if (i == 0 || node.inputs == std::vector<std::size_t>{i - 1}) continue;
    for (const std::size_t input : node.inputs) {
      if (!rows.back()[2].empty()) rows.push_back(std::vector<std::string>(rows[0].size()));
      rows.back()[2] = nodes[input].name;
    }
  }
  return columns_text(rows, 0, {4});
}

}  // namespace convscope
