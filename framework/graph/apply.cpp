// SPDX-License-Identifier: Apache-2.0
// apply.cpp: applies an operation to variables: runs it, or adds it to a graph.
#include "framework/graph/apply.h"

#include <span>

namespace convscope {

// An operation that has run, in a graph with one node, with the tensors that its backward pass
// reads.
class EagerNode final : public Node {
 public:
  EagerNode(std::unique_ptr<Operation> operation, std::span<const Variable> x, bool records)
      : Node(operation->kind().c_str()),
        graph_({}, records ? PlanMode::training : PlanMode::inference, x[0].device(),
               /*eager=*/true),
        operation_(std::move(operation)),
        emitter_(graph_) {
    operation_->inputs.reserve(x.size());
    for (const Variable& input : x) {
      const bool wants = records && input.requires_grad();
      operation_->inputs.push_back(
          graph_.add_value({.shape = input.shape(), .dtype = input.dtype()}, wants));
    }
    operation_->outputs = {graph_.add_value(operation_->bind(graph_), records)};
    for (const TensorDesc& more : operation_->more_outputs) {
      operation_->outputs.push_back(graph_.add_value(more));
    }
    if (operation_->is_view) graph_.share(operation_->output(), operation_->inputs[0]);
    emitter_.values_.resize(static_cast<std::size_t>(graph_.value_count()));
    for (std::size_t i = 0; i < x.size(); ++i) emitter_.values_[i + 1].tensor = x[i].value();
  }

  Tensor forward() {
    const Tensor y = emitter_.value(operation_->output());
    if (y.numel() == 0) return y;
    operation_->forward(emitter_);
    if (graph_.training()) emitter_.keep_for_backward(*operation_);
    return y;
  }

 protected:
  void run(const Tensor& dy, GradientSink& sink) override {
    if (dy.numel() == 0) return put_zeros(sink);
    emitter_.sink_ = &sink;
    emitter_.state_of(graph_.owner(operation_->output())).gradient_tensor = dy;
    operation_->backward(emitter_);
    emitter_.emit_deferred();
  }
  void drop_saved() override {
    emitter_.values_.clear();
    emitter_.slots_.clear();
  }

 private:
  void put_zeros(GradientSink& sink) const {
    for (std::size_t i = 0; i < operation_->inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      if (!sink.wants(input)) continue;
      const GradientSink::Target to = sink.target(input);
      if (!to.accumulate) to.tensor.zero();
    }
  }

  Graph graph_;
  std::unique_ptr<Operation> operation_;
  Emitter emitter_;
};

void check_real_inputs(const Graph& graph, const Operation& operation) {
  const TensorDesc& x = graph.desc(operation.inputs[0]);
  const char* const name = operation.kind().c_str();
  CONVSCOPE_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, name,
                  "expected x of type f32 or f64, got ", x.str());
  for (const ValueId input : operation.inputs) {
    CONVSCOPE_CHECK(graph.dtype(input) == x.dtype, name, "expected inputs of one type, got ",
                    x.str(), " and ", graph.desc(input).str());
  }
}

Variable apply(std::unique_ptr<Operation> operation, const std::vector<Variable>& given) {
  std::span<const Variable> x = given;
  while (!x.empty() && !x.back().defined()) x = x.first(x.size() - 1);
  CONVSCOPE_CHECK(!x.empty() && x.size() <= Node::kMaxInputs, operation->kind().c_str(),
                  "expected 1 to ", Node::kMaxInputs, " inputs, got ", x.size());
  Graph* graph = nullptr;
  bool records = false;
  for (const Variable& input : x) {
    CONVSCOPE_CHECK(input.defined() && input.device() == x[0].device(), operation->kind().c_str(),
                    "expected inputs on one device, got ", input.str(), " and ", x[0].str());
    if (input.graph() != nullptr) graph = input.graph();
    records = records || input.requires_grad();
  }
  if (graph != nullptr) {
    std::vector<ValueId> values;
    for (const Variable& input : x) values.push_back(graph->value_of(input));
    return graph->variable(graph->add(std::move(operation), std::move(values)));
  }
  records = records && grad_enabled();
  const Ref<EagerNode> node = make_ref<EagerNode>(std::move(operation), x, records);
  const Tensor y = node->forward();
  return records ? attach(y, x.data(), static_cast<int>(x.size()), node) : Variable(y);
}

}  // namespace convscope
