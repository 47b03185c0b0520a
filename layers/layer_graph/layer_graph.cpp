// SPDX-License-Identifier: Apache-2.0
// layer_graph.cpp: layers that are connected by name.
#include "layers/layer_graph/layer_graph.h"

#include "framework/graph/graph.h"
#include "framework/memory/work_clock.h"

namespace convscope {

LayerGraph::LayerGraph(std::vector<Entry> entries)
    : entries_(std::move(entries)), last_reader_(entries_.size() + 1, 0) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    add_child(entries_[i].name, entries_[i].layer);
    for (const LayerSource& source : entries_[i].sources) last_reader_.at(source.value) = i;
  }
}

Variable LayerGraph::forward(const Variable& x) { return only_output(forward(Variables{x})); }

Variables LayerGraph::forward(const Variables& inputs) {
  check_inputs(inputs.size());
  Variables out;
  const auto run = [&] {
    out = pass(inputs, [](const Entry& entry, const Variables& x) {
      const WorkScope work(entry.layer.get());
      const Graph::Scope scope(recorded_graph(x), entry.name);
      return (*entry.layer)(x);
    });
  };
  const bool runs_here =
      recorded_graph(inputs) == nullptr && inputs[0].device().type == DeviceType::cpu;
  runs_here ? in_parallel_.run(inputs[0].shape().numel(), run) : run();
  return out;
}

Shape LayerGraph::output_shape(const Shape& input) const {
  return only_output(output_shapes(Shapes{input}));
}

Shapes LayerGraph::output_shapes(const Shapes& inputs) const {
  check_inputs(inputs.size());
  return pass(inputs, [](const Entry& entry, const Shapes& shapes) {
    entry.layer->check_inputs(shapes.size());
    return entry.layer->output_shapes(shapes);
  });
}

void LayerGraph::walk(const Shapes& inputs, const WalkVisitor& visit) {
  pass(inputs, [&](const Entry& entry, const Shapes& shapes) {
    entry.layer->walk(shapes, visit);
    return entry.layer->output_shapes(shapes);
  });
}

}  // namespace convscope
