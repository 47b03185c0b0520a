// SPDX-License-Identifier: Apache-2.0
// graph.cpp: the static graph of a network: which operation reads which values, for inputs of
// one shape.
#include "framework/graph/graph.h"

#include <algorithm>
#include <tuple>

namespace convscope {
namespace {

class ReshapeOp final : public PlanOp {
 public:
  std::string text() const override { return "reshape"; }
  void forward(Emitter&) override {}
  void backward(Emitter&) override {}
};

std::vector<PlanRewrite>& rewrites() {
  static std::vector<PlanRewrite> list;
  return list;
}

}  // namespace

PlanOp::~PlanOp() = default;

std::vector<RanKernel> PlanOp::kernels(const Graph&) const { return {}; }

std::optional<double> PlanOp::layout_ms(const Graph&, ActivationLayout layout) const {
  if (layout == ActivationLayout::nchw) return 0.0;
  return std::nullopt;
}

bool PlanOp::absorb(const Graph&, PlanOp&) { return false; }

Graph::Graph(const Shape& input, PlanMode mode, Device device)
    : mode_(mode), device_(device) {
  values_.push_back({.shape = input, .wants_gradient = false, .owner = 0});
}

ValueId Graph::parameter(const Variable& parameter) {
  for (ValueId id = 0; id < value_count(); ++id) {
    const Variable* const known = parameter_of(id);
    if (known != nullptr && known->state() == parameter.state()) return id;
  }
  const ValueId id = value_count();
  values_.push_back({.shape = parameter.shape(),
                     .wants_gradient = parameter.requires_grad() && training(),
                     .owner = id,
                     .parameters_only = true,
                     .parameter = parameter});
  return id;
}

const Variable* Graph::parameter_of(ValueId value) const {
  const Variable& parameter = values_.at(index(value)).parameter;
  return parameter.defined() ? &parameter : nullptr;
}

bool Graph::is_valid() const {
  return std::all_of(conditions_.begin(), conditions_.end(),
                     [](const auto& holds) { return holds(); });
}

ValueId Graph::add(std::unique_ptr<PlanOp> op, std::vector<ValueId> inputs, const Shape& output,
                       bool has_parameters) {
  if (!refusal_.empty()) return kNoValue;
  bool wants = has_parameters;
  bool parameters_only = !inputs.empty();
  for (ValueId input : inputs) {
    wants = wants || wants_gradient(input);
    parameters_only = parameters_only && is_of_parameters(input);
  }
  const ValueId id = value_count();
  values_.push_back({.shape = output,
                     .wants_gradient = wants && training(),
                     .owner = id,
                     .parameters_only = parameters_only});
  op->layer = scope_;
  op->all_layers = {scope_};
  op->inputs = std::move(inputs);
  op->output = id;
  ops_.push_back(std::move(op));
  return id;
}

ValueId Graph::reshape(ValueId x, const Shape& shape) {
  if (!refusal_.empty()) return kNoValue;
  if (shape == this->shape(x)) return x;
  const ValueId id = add(std::make_unique<ReshapeOp>(), {x}, shape);
  if (id != kNoValue) values_[index(id)].owner = owner(x);
  return id;
}

ValueId Graph::add_value(const Shape& shape, DType dtype, ActivationLayout layout) {
  const ValueId id = value_count();
  values_.push_back({.shape = shape, .owner = id, .layout = layout, .dtype = dtype});
  return id;
}

ValueId Graph::add_stored(ValueId value, ActivationLayout layout, bool shared, DType dtype) {
  const ValueId id = value_count();
  values_.push_back({.shape = shape(value),
                     .wants_gradient = wants_gradient(value),
                     .owner = shared ? owner(value) : id,
                     .layout = layout,
                     .dtype = dtype});
  return id;
}

ValueId Graph::refuse(const std::string& why) {
  if (refusal_.empty()) refusal_ = scope_.empty() ? why : cat("'", scope_, "': ", why);
  return kNoValue;
}

void Graph::not_yet(const std::string& why) {
  if (wait_.empty()) wait_ = scope_.empty() ? why : cat("'", scope_, "': ", why);
}

Graph::Scope::Scope(Graph& graph, const std::string& name)
    : graph_(graph), before_(graph.scope_) {
  graph.scope_ = before_.empty() ? name : before_ + "." + name;
}

Graph::Scope::~Scope() { graph_.scope_ = before_; }

ValueId Graph::owner(ValueId value) const { return values_.at(index(value)).owner; }

int Graph::readers(ValueId value) const {
  int count = value == result_ ? 1 : 0;
  for (const auto& op : ops_) {
    count += static_cast<int>(std::count(op->inputs.begin(), op->inputs.end(), value));
  }
  return count;
}

Graph::ReadAs Graph::read_as(ValueId value) const {
  ReadAs out{.numbers = owner(result_) == owner(value)};
  for (const auto& op : ops_) {
    for (std::size_t i = 0; i < op->inputs.size(); ++i) {
      if (owner(op->inputs[i]) != owner(value)) continue;
      (op->reads_operands(*this, i) ? out.operands : out.numbers) = true;
    }
  }
  return out;
}

bool Graph::gradient_is_read_as_operands(ValueId value) const {
  const auto gives = [&](const auto& op) { return op->output == value; };
  const auto op = std::ranges::find_if(ops_, gives);
  return op != ops_.end() && readers(value) == 1 && (*op)->reads_gradient_operands(*this);
}

void Graph::fuse() {
  for (std::size_t at = 0; at < ops_.size();) {
    PlanOp& op = *ops_[at];
    const auto reads = [&](const std::unique_ptr<PlanOp>& other) {
      return std::count(other->inputs.begin(), other->inputs.end(), op.output) > 0;
    };
    const auto next =
        std::find_if(ops_.begin() + static_cast<std::ptrdiff_t>(at) + 1, ops_.end(), reads);
    if (next == ops_.end() || readers(op.output) != 1 || !op.absorb(*this, **next)) {
      ++at;
      continue;
    }
    for (ValueId input : (*next)->inputs) {
      if (input != op.output) op.inputs.push_back(input);
    }
    op.output = (*next)->output;
    op.all_layers.insert(op.all_layers.end(), (*next)->all_layers.begin(),
                         (*next)->all_layers.end());
    // The fused operation runs at the position of `next`, whose other inputs may be computed after
    // `op`.
    *next = std::move(ops_[at]);
    ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

bool register_plan_rewrite(const PlanRewrite& rewrite) {
  auto& list = rewrites();
  list.insert(std::upper_bound(list.begin(), list.end(), rewrite,
                               [](const auto& a, const auto& b) {
                                 return std::tuple(!a.goes_first, a.name) <
                                        std::tuple(!b.goes_first, b.name);
                               }),
              rewrite);
  return true;
}

const std::vector<PlanRewrite>& plan_rewrites() { return rewrites(); }

}  // namespace convscope
