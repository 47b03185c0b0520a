// SPDX-License-Identifier: Apache-2.0
// simple_operation.cpp: emits the two kernel calls of a simple operation.
#include "framework/graph/simple_operation.h"

namespace convscope {

// Returns a list that the next call in this thread changes, so that an eager operation allocates
// none.
const std::vector<Shape>& SimpleOperation::shapes(const Graph& graph) const {
  thread_local std::vector<Shape> out;
  out.clear();
  for (const ValueId input : inputs) out.push_back(graph.shape(input));
  return out;
}

TensorDesc SimpleOperation::bind(Graph& graph) {
  check_real_inputs(graph, *this);
  return {output_shape(shapes(graph)), graph.dtype(inputs[0])};
}

std::optional<Format> SimpleOperation::Layouts::format(ActivationLayout layout) const {
  const bool takes = layout == ActivationLayout::nchw16c ? nchw16c
                     : layout == ActivationLayout::nhwc  ? nhwc
                                                         : true;
  return takes ? std::optional(Format{}) : std::nullopt;
}

// A saved tensor of the shape of an image has the layout of the images.
Shape SimpleOperation::stored(const Graph& graph, const Shape& shape) const {
  return shape == graph.shape(output()) ? graph.stored_shape(output()) : shape;
}

SimpleOperation::Forward SimpleOperation::forward_arguments(Emitter& emitter) {
  const Graph& graph = emitter.graph();
  Forward a;
  a.x.reserve(inputs.size());
  for (const ValueId input : inputs) a.x.push_back(emitter.value(input));
  a.y = emitter.value(output());
  saved_.clear();
  for (const TensorDesc& desc : keeps(shapes(graph)).saved) {
    const bool wanted = graph.wants_gradient(output());
    saved_.push_back(wanted ? emitter.slot(stored(graph, desc.shape), desc.dtype) : kNoSlot);
    a.saved.push_back(wanted ? emitter.use(saved_.back()) : Tensor());
  }
  return a;
}

// Operations assign their gradients. Where a gradient exists already, the operation writes to a
// temporary first.
SimpleOperation::Backward SimpleOperation::backward_arguments(Emitter& emitter,
                                                              std::vector<Part>& to_add) {
  const Graph& graph = emitter.graph();
  Backward a;
  const Keeps keeps = this->keeps(shapes(graph));
  if (keeps.inputs) {
    for (const ValueId input : inputs) a.x.push_back(emitter.value(input));
  }
  if (keeps.output) a.y = emitter.value(output());
  for (const Slot slot : saved_) a.saved.push_back(emitter.use(slot));
  if (emitter.is_learning()) return a;
  a.dx.reserve(inputs.size());
  for (const TensorDesc& desc : keeps.scratch) {
    a.scratch.push_back(emitter.use(emitter.slot(desc.shape, desc.dtype)));
  }
  a.dy = emitter.gradient(output());
  for (const ValueId input : inputs) {
    if (!graph.wants_gradient(input)) {
      a.dx.emplace_back();
      continue;
    }
    const Emitter::Target target = emitter.gradient_target(input);
    if (!target.accumulate) {
      a.dx.push_back(target.tensor);
      continue;
    }
    to_add.push_back({input, emitter.slot(target.tensor.shape(), target.tensor.dtype())});
    a.dx.push_back(emitter.use(to_add.back().slot));
  }
  return a;
}

void SimpleOperation::forward(Emitter& emitter) {
  emitter.call([this, a = forward_arguments(emitter)] { run(a); });
}

void SimpleOperation::backward(Emitter& emitter) {
  std::vector<Part> to_add;
  emitter.call([this, a = backward_arguments(emitter, to_add)] { run(a); });
  for (const Part& part : to_add) emitter.add_to_gradient(part.value, part.slot);
}

}  // namespace convscope
