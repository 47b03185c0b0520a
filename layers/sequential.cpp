// SPDX-License-Identifier: Apache-2.0
// sequential.cpp: layers one after the other.
#include "layers/sequential.h"

#include "framework/graph/graph.h"
#include "framework/memory/work_clock.h"

namespace convscope {

void Sequential::add(const std::string& name, std::shared_ptr<Module> layer) {
  CONVSCOPE_CHECK(layer != nullptr, "sequential", "expected a layer named '", name, "', got none");
  names_.push_back(name);
  has_lists_ = has_lists_ || layer->has_lists();
  layers_.push_back(add_child(name, std::move(layer)));
}

// Without lists of variables, which would be allocated for each layer.
Variable Sequential::forward(const Variable& x) {
  if (has_lists_) return only_output(forward(Variables{x}));
  Variable y = x;
  const auto pass = [&] {
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      const WorkScope work(layers_[i].get());
      const Graph::Scope scope(x.graph(), names_[i]);
      y = (*layers_[i])(y);
    }
  };
  const bool runs_here = x.graph() == nullptr && x.device().type == DeviceType::cpu;
  runs_here ? in_parallel_.run(x.shape().numel(), pass) : pass();
  return y;
}

Variables Sequential::forward(const Variables& inputs) {
  Variables y = inputs;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const WorkScope work(layers_[i].get());
    const Graph::Scope scope(recorded_graph(y), names_[i]);
    y = (*layers_[i])(y);
  }
  return y;
}

Shape Sequential::output_shape(const Shape& input) const {
  return only_output(output_shapes(Shapes{input}));
}

Shapes Sequential::output_shapes(const Shapes& inputs) const {
  Shapes shapes = inputs;
  for (const std::shared_ptr<Module>& layer : layers_) {
    layer->check_inputs(shapes.size());
    shapes = layer->output_shapes(shapes);
  }
  return shapes;
}

void Sequential::walk(const Shapes& inputs, const WalkVisitor& visit) {
  Shapes shapes = inputs;
  for (const std::shared_ptr<Module>& layer : layers_) {
    layer->walk(shapes, visit);
    shapes = layer->output_shapes(shapes);
  }
}

}  // namespace convscope
