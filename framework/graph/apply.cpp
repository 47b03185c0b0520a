// SPDX-License-Identifier: Apache-2.0
// apply.cpp: applies an operation to variables: runs it, or adds it to a graph.
#include "framework/graph/apply.h"

#include <span>
#include <utility>
#include <vector>

namespace convscope {

// Runs one operation, in a graph with one node, and keeps the tensors that its backward pass reads.
// A run that has ended is used again for another operation, so that its lists allocate no memory.
class EagerRun {
 public:
  struct GiveBack {
    void operator()(EagerRun* run) const { run->give_back(); }
  };
  using Owner = std::unique_ptr<EagerRun, GiveBack>;
  static Owner take();

  void bind(Operation& operation, std::span<const Variable> x, bool records) {
    operation_ = &operation;
    graph_.mode_ = records ? PlanMode::training : PlanMode::inference;
    graph_.device_ = x[0].device();
    operation.inputs.swap(inputs_);
    operation.outputs.swap(outputs_);
    for (const Variable& input : x) {
      const Variable::State& state = *input.state();
      operation.inputs.push_back(graph_.value_count());
      Graph::Value& value = graph_.values_.emplace_back();
      value.desc.shape = state.value.shape();
      value.desc.dtype = state.value.dtype();
      value.wants_gradient = records && state.requires_grad;
      value.owner = operation.inputs.back();
    }
    operation.outputs.push_back(graph_.add_value(operation.bind(graph_), records));
    for (const TensorDesc& more : operation.more_outputs) {
      operation.outputs.push_back(graph_.add_value(more));
    }
    if (operation.is_view) graph_.share(operation.output(), operation.inputs[0]);
    emitter_.values_.resize(static_cast<std::size_t>(graph_.value_count()));
    for (std::size_t i = 0; i < x.size(); ++i) emitter_.values_[i + 1].tensor = x[i].state()->value;
  }

  Tensor forward() {
    Tensor y = emitter_.value(operation_->output());
    if (y.numel() == 0) return y;
    operation_->forward(emitter_);
    if (graph_.training()) emitter_.keep_for_backward(*operation_);
    return y;
  }

  void backward(const Tensor& dy, GradientSink& sink) {
    if (dy.numel() == 0) return put_zeros(sink);
    emitter_.sink_ = &sink;
    emitter_.output_gradient_ = dy;
    operation_->backward(emitter_);
    emitter_.emit_deferred();
  }

 private:
  EagerRun() : graph_({}, PlanMode::inference, {}, /*eager=*/true), emitter_(graph_) {}

  void put_zeros(GradientSink& sink) const {
    for (std::size_t i = 0; i < operation_->inputs.size(); ++i) {
      const int input = static_cast<int>(i);
      if (!sink.wants(input)) continue;
      const GradientSink::Target to = sink.target(input);
      if (!to.accumulate) to.tensor.zero();
    }
  }

  void give_back();

  Graph graph_;
  Emitter emitter_;
  Operation* operation_ = nullptr;
  std::vector<ValueId> inputs_, outputs_;  // lent to the operation
  EagerRun* next_ = nullptr;               // in ended_runs
};

namespace {

// The runs of this thread that have ended. The list needs no destructor, so it still exists when
// other thread-local objects free variables; Closer empties it at the end of the thread.
struct EndedRuns {
  static constexpr int kMaxCount = 1024;
  EagerRun* first = nullptr;
  int count = 0;
  bool is_closed = false;
};
thread_local constinit EndedRuns ended_runs;

}  // namespace

EagerRun::Owner EagerRun::take() {
  EndedRuns& ended = ended_runs;
  if (ended.first == nullptr) return Owner(new EagerRun);
  --ended.count;
  return Owner(std::exchange(ended.first, std::exchange(ended.first->next_, nullptr)));
}

void EagerRun::give_back() {
  struct Closer {
    ~Closer() {
      ended_runs.is_closed = true;
      while (ended_runs.first != nullptr) delete take().release();
    }
  };
  EndedRuns& ended = ended_runs;
  if (ended.is_closed || ended.count == EndedRuns::kMaxCount) {
    delete this;
    return;
  }
  if (ended.first == nullptr) {
    thread_local const Closer closer;
  }
  operation_->inputs.swap(inputs_);
  operation_->outputs.swap(outputs_);
  inputs_.clear();
  outputs_.clear();
  graph_.values_.resize(1);  // its input
  graph_.wait_.clear();
  graph_.conditions_.clear();
  emitter_.restart_eager();
  next_ = std::exchange(ended.first, this);
  ++ended.count;
}

// An operation on the tape.
class EagerNode final : public Node {
 public:
  EagerNode(std::unique_ptr<Operation> operation, EagerRun::Owner run)
      : Node(operation->kind().data()), operation_(std::move(operation)), run_(std::move(run)) {}

 protected:
  void run(const Tensor& dy, GradientSink& sink) override { run_->backward(dy, sink); }
  void drop_saved() override { run_.reset(); }

 private:
  std::unique_ptr<Operation> operation_;
  EagerRun::Owner run_;
};

void check_real_inputs(const Graph& graph, const Operation& operation) {
  const TensorDesc& x = graph.desc(operation.inputs[0]);
  const char* const name = operation.kind().data();
  CONVSCOPE_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, name,
                  "expected x of type f32 or f64, got ", x.str());
  for (const ValueId input : operation.inputs) {
    CONVSCOPE_CHECK(graph.dtype(input) == x.dtype, name, "expected inputs of one type, got ",
                    x.str(), " and ", graph.desc(input).str());
  }
}

Variable apply(std::unique_ptr<Operation> operation, std::span<const Variable> x) {
  while (!x.empty() && !x.back().defined()) x = x.first(x.size() - 1);
  CONVSCOPE_CHECK(!x.empty() && x.size() <= Node::kMaxInputs, operation->kind().data(),
                  "expected 1 to ", Node::kMaxInputs, " inputs, got ", x.size());
  Graph* graph = nullptr;
  bool records = false;
  for (const Variable& input : x) {
    CONVSCOPE_CHECK(input.defined() && input.device() == x[0].device(), operation->kind().data(),
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
  EagerRun::Owner run = EagerRun::take();
  run->bind(*operation, x, records);
  Tensor y = run->forward();
  if (!records) return Variable(std::move(y));
  return attach(std::move(y), x.data(), static_cast<int>(x.size()),
                make_ref<EagerNode>(std::move(operation), std::move(run)));
}

}  // namespace convscope
