// SPDX-License-Identifier: Apache-2.0
// module.cpp: the base class of layers and networks: named parameters, named buffers, named
// children, and a forward pass.
#include "layers/module.h"

#include <cmath>

#include "framework/graph/graph.h"
#include "layers/dispatch/operator_use.h"
#include "layers/plan/eager_op.h"

namespace convscope {
namespace {
std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

Variables as_eager_operation(Module& module, Graph& graph, const Variables& inputs) {
  std::vector<ValueId> values;
  for (const Variable& input : inputs) values.push_back(graph.value_of(input));
  for (const Variable& parameter : eager_inputs(module)) {
    values.push_back(graph.parameter(parameter));
  }
  graph.add(make_eager_op(module), std::move(values));
  Variables outputs;
  for (const ValueId value : graph.ops().back()->outputs) outputs.push_back(graph.variable(value));
  return outputs;
}
}  // namespace

Module::~Module() = default;

Variables Module::forward(const Variables& inputs) {
  check_inputs(inputs.size());
  return {forward(inputs[0])};
}

Shapes Module::output_shapes(const Shapes& inputs) const {
  check_inputs(inputs.size());
  return {output_shape(inputs[0])};
}

Variable MultiModule::forward(const Variable& x) {
  check_inputs(1);
  return only_output(forward(Variables{x}));
}

Shape MultiModule::output_shape(const Shape& input) const {
  check_inputs(1);
  return only_output(output_shapes(Shapes{input}));
}

void Module::check_inputs(std::size_t count) const {
  CONVSCOPE_CHECK(count == input_count(), kind(), "expected ", input_count(),
                  input_count() == 1 ? " input, got " : " inputs, got ", count);
}

void Module::check_one_output(std::size_t count) const {
  CONVSCOPE_CHECK(count == 1, kind(), "expected one output because one variable is asked for, got ",
                  count);
}

Graph* recorded_graph(const Variables& inputs) {
  Graph* graph = nullptr;
  for (const Variable& input : inputs) {
    if (input.graph() != nullptr) graph = input.graph();
  }
  return graph;
}

Variable Module::operator()(const Variable& x) {
  return x.graph() == nullptr ? forward(x) : only_output((*this)(Variables{x}));
}

Variables Module::operator()(const Variables& inputs) {
  check_inputs(inputs.size());
  Graph* const graph = recorded_graph(inputs);
  if (graph == nullptr) return forward(inputs);
  const std::size_t before = graph->ops().size();
  try {
    return forward(inputs);
  } catch (const SymbolicValue&) {
    graph->truncate(before);
    return as_eager_operation(*this, *graph, inputs);
  }
}

bool Module::trains_on(const Variable& x) const {
  return x.graph() != nullptr ? x.graph()->training() : training_;
}

std::unique_ptr<OperatorUse> Module::operator_use(const Shape&) const { return nullptr; }

void Module::train(bool on) {
  training_ = on;
  for (auto& [name, child] : children_) child->train(on);
}

void Module::set_step(std::int64_t step) {
  step_ = step;
  for (auto& [name, child] : children_) child->set_step(step);
}

std::vector<NamedParameter> Module::parameters() const {
  std::vector<NamedParameter> out;
  collect_parameters("", 1.0, out);
  return out;
}

std::vector<NamedTensor> Module::buffers() const {
  std::vector<NamedTensor> out;
  collect_buffers("", out);
  return out;
}

std::vector<NamedModule> Module::modules() {
  std::vector<NamedModule> out;
  collect_modules("", out);
  return out;
}

void Module::add_input_transform(const std::string& name, std::shared_ptr<Module> transform) {
  add_child_module(name, transform);
  input_transforms_.push_back(std::move(transform));
}

void Module::add_weight_transform(const std::string& name, std::shared_ptr<Module> transform,
                                  bool first) {
  add_child_module(name, transform);
  weight_transforms_.insert(first ? weight_transforms_.begin() : weight_transforms_.end(),
                            std::move(transform));
}

Variable Module::transformed_input(const Variable& x) const {
  return passed(x, input_transforms_, x.graph());
}

Variable Module::transformed_weight(const Variable& w, Graph* graph) const {
  const bool records = graph != nullptr;
  return passed(records ? graph->variable(graph->parameter(w)) : w, weight_transforms_, graph);
}

Variable Module::passed(const Variable& x, const std::vector<std::shared_ptr<Module>>& through,
                        Graph* graph) const {
  if (graph != nullptr) {  // a transform that is added later makes this graph invalid
    graph->valid_while([&through, count = through.size()] { return through.size() == count; });
  }
  Variable out = x;
  for (const auto& transform : through) {
    for (const auto& [name, child] : children_) {
      if (child != transform) continue;
      const Graph::Scope scope(graph, name);
      out = (*transform)(out);
    }
  }
  return out;
}

void Module::zero_grad() {
  for (NamedParameter& parameter : parameters_) parameter.variable.zero_grad();
  for (auto& [name, child] : children_) child->zero_grad();
}

std::int64_t Module::parameter_count() const {
  std::int64_t count = 0;
  for (const NamedParameter& parameter : parameters()) count += parameter.variable.value().numel();
  return count;
}

void Module::scale_learning_rate(double factor) {
  CONVSCOPE_CHECK(std::isfinite(factor) && factor >= 0, kind(),
                  "expected a factor on the learning rate of at least 0, got ", factor);
  lr_scale_ = factor;
}

Variable Module::add_parameter(const std::string& name, const Tensor& value) {
  parameters_.push_back({.name = name, .variable = Variable(value, /*requires_grad=*/true)});
  return parameters_.back().variable;
}

void Module::add_buffer(const std::string& name, Tensor& member, const Tensor& value,
                        BufferPlace place) {
  member = value;
  buffers_.push_back({name, &member, {}, place});
}

void Module::add_buffer(const std::string& name, const Variable& value) {
  buffers_.push_back({name, nullptr, value, BufferPlace::with_parameters});
}

void Module::to(Device device) {
  const auto move = [device](Variable::State& state) {
    state.value = state.value.to(device);
    if (state.grad.defined()) state.grad = state.grad.to(device);
  };
  for (NamedParameter& parameter : parameters_) move(*parameter.variable.state());
  for (Buffer& buffer : buffers_) {
    if (buffer.member == nullptr) {
      move(*buffer.variable.state());
    } else if (buffer.place != BufferPlace::host) {
      *buffer.member = buffer.member->to(device);
    }
  }
  moved_to(device);
  for (auto& [name, child] : children_) child->to(device);
}

void Module::add_child_module(const std::string& name, std::shared_ptr<Module> child) {
  for (const auto& [taken, other] : children_) {
    CONVSCOPE_CHECK(taken != name, "module", "expected children with different names, got '", name,
                    "' twice in a ", kind());
  }
  children_.emplace_back(name, std::move(child));
}

void Module::collect_parameters(const std::string& prefix, double lr_scale,
                                std::vector<NamedParameter>& out) const {
  lr_scale *= lr_scale_;
  for (const NamedParameter& own : parameters_) {
    out.push_back({joined(prefix, own.name), own.variable, lr_scale});
  }
  for (const auto& [name, child] : children_) {
    child->collect_parameters(joined(prefix, name), lr_scale, out);
  }
}

void Module::collect_buffers(const std::string& prefix, std::vector<NamedTensor>& out) const {
  for (const Buffer& buffer : buffers_) {
    out.push_back({joined(prefix, buffer.name),
                   buffer.member != nullptr ? *buffer.member : buffer.variable.value()});
  }
  for (const auto& [name, child] : children_) child->collect_buffers(joined(prefix, name), out);
}

void Module::collect_modules(const std::string& prefix, std::vector<NamedModule>& out) {
  out.push_back({prefix, this});
  for (const auto& [name, child] : children_) child->collect_modules(joined(prefix, name), out);
}

}  // namespace convscope
