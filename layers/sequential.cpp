// SPDX-License-Identifier: Apache-2.0
// sequential.cpp: layers one after the other.
#include "layers/sequential.h"

#include "framework/graph/graph.h"
#include "framework/memory/work_clock.h"

namespace convscope {

void Sequential::add(const std::string& name, std::shared_ptr<Module> layer) {
  CONVSCOPE_CHECK(layer != nullptr, "sequential", "expected a layer named '", name, "', got none");
  names_.push_back(name);
  layers_.push_back(add_child(name, std::move(layer)));
}

Variable Sequential::forward(const Variable& x) {
  Variable y = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const WorkScope work(layers_[i].get());
    const Graph::Scope scope(x.graph(), names_[i]);
    y = (*layers_[i])(y);
  }
  return y;
}

Shape Sequential::output_shape(const Shape& input) const {
  Shape shape = input;
  for (const std::shared_ptr<Module>& layer : layers_) shape = layer->output_shape(shape);
  return shape;
}

void Sequential::walk(const Shape& input, const WalkVisitor& visit) {
  Shape shape = input;
  for (const std::shared_ptr<Module>& layer : layers_) {
    layer->walk(shape, visit);
    shape = layer->output_shape(shape);
  }
}

}  // namespace convscope
