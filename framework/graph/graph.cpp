// SPDX-License-Identifier: Apache-2.0
// graph.cpp: the static graph of a network: which operation reads which values, for inputs of one
// shape.
#include "framework/graph/graph.h"

#include <algorithm>
#include <map>

namespace convscope {
namespace {

std::vector<Fusion>& fusions_of(std::string_view pass) {
  static std::map<std::string, std::vector<Fusion>, std::less<>> lists;
  return lists[std::string(pass)];
}

}  // namespace

Operation::~Operation() = default;

TensorDesc Operation::bind(Graph& graph) { return graph.desc(inputs[0]); }

std::optional<Format> Operation::format(const Graph&, ActivationLayout layout) const {
  if (layout == ActivationLayout::nchw) return Format{};
  return std::nullopt;
}

bool register_fusions(std::string_view pass, const std::vector<Fusion>& fusions) {
  std::vector<Fusion>& list = fusions_of(pass);
  list.insert(list.end(), fusions.begin(), fusions.end());
  return true;
}

Graph::Graph(const Shape& input, PlanMode mode, Device device, bool eager)
    : mode_(mode), device_(device), eager_(eager) {
  values_.reserve(eager ? 8 : 64);  // an eager operation has few values
  add_value({.shape = input});
}

ValueId Graph::parameter(const Variable& parameter) {
  for (ValueId id = 0; id < value_count(); ++id) {
    const Variable* const known = parameter_of(id);
    if (known != nullptr && known->state() == parameter.state()) return id;
  }
  const ValueId id = add_value({.shape = parameter.shape(), .dtype = parameter.dtype()},
                               parameter.requires_grad() && training());
  values_.back().parameters_only = true;
  values_.back().parameter = parameter;
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

ValueId Graph::add(std::unique_ptr<Operation> op, std::vector<ValueId> inputs) {
  bool parameters_only = !inputs.empty();
  bool wants = false;
  for (ValueId input : inputs) {
    wants = wants || wants_gradient(input);
    parameters_only = parameters_only && is_of_parameters(input);
  }
  op->layer = scope_;
  op->all_layers = {scope_};
  op->inputs = std::move(inputs);
  const ValueId id = add_value(op->bind(*this), wants && training());
  values_.back().parameters_only = parameters_only;
  op->outputs = {id};
  for (const TensorDesc& more : op->more_outputs) {
    const bool is_real = more.dtype == DType::f32 || more.dtype == DType::f64;
    op->outputs.push_back(add_value(more, wants && training() && is_real));
    values_.back().parameters_only = parameters_only;
  }
  if (op->is_view) share(id, op->inputs[0]);
  ops_.push_back(std::move(op));
  return id;
}

ValueId Graph::add_value(const TensorDesc& desc, bool wants_gradient) {
  const ValueId id = value_count();
  values_.push_back({.desc = desc, .wants_gradient = wants_gradient, .owner = id});
  return id;
}

ValueId Graph::add_stored(ValueId value, ActivationLayout layout, bool shared, DType dtype) {
  const ValueId id = add_value({shape(value), dtype, layout}, wants_gradient(value));
  if (shared) share(id, value);
  return id;
}

Variable Graph::variable(ValueId value) {
  return Variable::symbolic(*this, value, desc(value).shape, desc(value).dtype, device_,
                            wants_gradient(value));
}

ValueId Graph::value_of(const Variable& variable) {
  return variable.graph() == this ? variable.graph_value() : parameter(variable);
}

void Graph::refuse(const std::string& why) const {
  throw NotCompiled(scope_.empty() ? why : cat("'", scope_, "': ", why));
}

void Graph::not_yet(const std::string& why) {
  if (wait_.empty()) wait_ = scope_.empty() ? why : cat("'", scope_, "': ", why);
}

Graph::Scope::Scope(Graph* graph, const std::string& name) : graph_(graph) {
  if (graph == nullptr) return;
  before_ = graph->scope_;
  graph->scope_ = before_.empty() ? name : before_ + "." + name;
}

Graph::Scope::~Scope() {
  if (graph_ != nullptr) graph_->scope_ = before_;
}

void Graph::remove_unread() {
  for (std::size_t at = ops_.size(); at-- > 0;) {
    const auto is_read = [&](ValueId value) { return readers(value) > 0; };
    if (std::ranges::any_of(ops_[at]->outputs, is_read)) continue;
    ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

Operation* Graph::producer(ValueId value) const {
  const auto gives = [&](const auto& op) { return std::ranges::count(op->outputs, value) > 0; };
  const auto op = std::ranges::find_if(ops_, gives);
  return op == ops_.end() ? nullptr : op->get();
}

Operation* Graph::only_reader(ValueId value) const {
  if (readers(value) != 1) return nullptr;
  const auto reads = [&](const auto& op) { return std::ranges::count(op->inputs, value) > 0; };
  const auto op = std::ranges::find_if(ops_, reads);
  return op == ops_.end() ? nullptr : op->get();
}

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
      (i == 0 && op->uses.image_as_operands ? out.operands : out.numbers) = true;
    }
  }
  return out;
}

bool Graph::gradient_is_read_as_operands(ValueId value) const {
  const Operation* const op = producer(value);
  return op != nullptr && readers(value) == 1 && op->uses.gradient_as_operands;
}

std::vector<std::unique_ptr<Operation>> Graph::replace(const std::vector<Operation*>& chain,
                                                       std::unique_ptr<Operation> joined) {
  joined->inputs = {chain.front()->inputs[0]};
  joined->outputs = chain.back()->outputs;
  for (const Operation* op : chain) {  // inputs after the first: weights, biases
    joined->inputs.insert(joined->inputs.end(), op->inputs.begin() + 1, op->inputs.end());
    joined->all_layers.insert(joined->all_layers.end(), op->all_layers.begin(),
                              op->all_layers.end());
  }
  // Weights of later operations may be computed after the first one, so `joined` is placed last.
  std::vector<std::unique_ptr<Operation>> out, rest;
  for (std::unique_ptr<Operation>& op : ops_) {
    const bool is_last = op.get() == chain.back();
    (std::ranges::count(chain, op.get()) > 0 ? out : rest).push_back(std::move(op));
    if (is_last) rest.push_back(std::move(joined));
  }
  ops_ = std::move(rest);
  return out;
}

void Graph::fuse(std::string_view pass) {
  const std::vector<Fusion>& fusions = fusions_of(pass);
  for (std::size_t at = 0; at < ops_.size();) {
    Operation& op = *ops_[at];
    Operation* const next = only_reader(op.output());
    const auto fusion = std::ranges::find_if(fusions, [&](const Fusion& each) {
      return next != nullptr && op.kind() == each.first && next->kind() == each.next &&
             each.fuse(*this, op, *next);
    });
    if (fusion == fusions.end()) {
      ++at;
      continue;
    }
    const ValueId between = op.output();
    std::unique_ptr<Operation> both = std::move(ops_[at]);
    if (fusion->join != nullptr) both = fusion->join(std::move(both));
    for (ValueId input : next->inputs) {
      if (input != between) both->inputs.push_back(input);
    }
    both->outputs = next->outputs;
    both->all_layers.insert(both->all_layers.end(), next->all_layers.begin(),
                            next->all_layers.end());
    // The fused operation runs at the position of `next`, whose other inputs may be computed after
    // `op`.
    const auto place =
        std::ranges::find_if(ops_, [&](const auto& other) { return other.get() == next; });
    *place = std::move(both);
    ops_.erase(ops_.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

}  // namespace convscope
