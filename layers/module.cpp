// SPDX-License-Identifier: Apache-2.0
// module.cpp: the base class of layers and networks: named parameters, named buffers, named
// children, and a forward pass.
#include "layers/module.h"

#include <cmath>

#include "layers/dispatch/operator_use.h"
#include "layers/plan/operation_op.h"

namespace convscope {
namespace {
std::string joined(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}
}  // namespace

Module::~Module() = default;

int Module::describe(Graph& graph, int x) { return describe_dynamic(graph, *this, x); }

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
  Variable out = x;
  for (const auto& transform : input_transforms_) out = transform->forward(out);
  return out;
}

Variable Module::transformed_weight(const Variable& w) const {
  Variable out = w;
  for (const auto& transform : weight_transforms_) out = transform->forward(out);
  return out;
}

int Module::described(Graph& graph, int x,
                      const std::vector<std::shared_ptr<Module>>& through) const {
  // A transform that is added later makes this plan invalid.
  graph.valid_while([&through, count = through.size()] { return through.size() == count; });
  for (const auto& transform : through) {
    for (const auto& [name, child] : children_) {
      if (child != transform || x == kNoValue) continue;
      const Graph::Scope scope(graph, name);
      x = transform->describe(graph, x);
    }
  }
  return x;
}

int Module::transformed_input(Graph& graph, int x) const {
  return described(graph, x, input_transforms_);
}

int Module::transformed_weight(Graph& graph, const Variable& w) const {
  return described(graph, graph.parameter(w), weight_transforms_);
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
