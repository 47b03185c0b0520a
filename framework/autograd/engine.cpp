// SPDX-License-Identifier: Apache-2.0
// engine.cpp: the backward pass.
//
// Nodes are numbered in order of creation, and a node is created after all nodes that it depends
// on. So the backward pass collects every node that the loss depends on, sorts the nodes by number
// in descending order, and runs each node once. When a node runs, all nodes that use its output
// have run, so the gradient of the output is complete.
#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <utility>
#include <vector>

#include "framework/autograd/leaf_watch.h"
#include "framework/autograd/parallel_pass.h"
#include "framework/autograd/variable.h"
#include "framework/memory/work_clock.h"
#include "framework/ops/accumulate.h"

namespace convscope {
namespace {

std::atomic<std::uint64_t> node_counter{0};
std::atomic<std::uint64_t> pass_counter{0};
thread_local LeafWatch* leaf_watch = nullptr;

}  // namespace

LeafWatch::LeafWatch(std::function<void(const Variable&)> ready)
    : ready_(std::move(ready)), before_(leaf_watch) {
  leaf_watch = this;
}
LeafWatch::~LeafWatch() { leaf_watch = before_; }

Node::~Node() = default;

Variable attach(Tensor value, const Variable* inputs, int count, Ref<Node> node) {
  CONVSCOPE_CHECK(count <= Node::kMaxInputs, node->name_, "expected at most ", Node::kMaxInputs,
                  " inputs, got ", count);
  node->input_count_ = count;
  node->sequence_ = ++node_counter;
  node->worker_ = current_worker();
  node->shape_ = value.shape();
  node->dtype_ = value.dtype();
  node->device_ = value.device();
  for (int i = 0; i < count; ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    Node::Edge& edge = node->edges_[static_cast<std::size_t>(i)];
    edge.producer = inputs[i].state()->producer;
    if (!edge.producer) edge.leaf = inputs[i].ref();
  }
  Variable out(std::move(value));
  out.state()->requires_grad = true;
  out.state()->producer = std::move(node);
  return out;
}

bool GradientSink::wants(int input) const {
  const Node::Edge& edge = node_.edges_[static_cast<std::size_t>(input)];
  return edge.producer || edge.leaf;
}

void GradientSink::add(int input, Tensor gradient) {
  CONVSCOPE_CHECK(wants(input), node_.name_, "expected an input that needs a gradient, got input ",
                  input);
  const Node::Edge& edge = node_.edges_[static_cast<std::size_t>(input)];
  const Shape& wanted = edge.leaf ? edge.leaf->value.shape() : edge.producer->shape_;
  CONVSCOPE_CHECK(gradient.shape() == wanted, node_.name_, "expected the gradient of input ", input,
                  " to have its shape ", wanted, ", got ", gradient.shape());
  if (edge.leaf) {
    Variable::State& leaf = *edge.leaf;
    if (leaf.grad_is_zero) {
      leaf.grad = std::move(gradient);
      leaf.grad_is_zero = false;
    } else {
      accumulate(leaf.grad, gradient);
    }
  } else if (!edge.producer->pending_.defined()) {
    edge.producer->pending_ = std::move(gradient);
  } else {
    accumulate(edge.producer->pending_, gradient);
  }
}

GradientSink::Target GradientSink::target(int input) {
  CONVSCOPE_CHECK(wants(input), node_.name_, "expected an input that needs a gradient, got input ",
                  input);
  const Node::Edge& edge = node_.edges_[static_cast<std::size_t>(input)];
  if (edge.leaf) {
    Variable::State& leaf = *edge.leaf;
    const bool accumulates = !leaf.grad_is_zero;
    if (!leaf.grad.defined()) {
      leaf.grad = Tensor::empty(leaf.value.shape(), leaf.value.dtype(), leaf.value.device());
    }
    leaf.grad_is_zero = false;
    return {leaf.grad, accumulates};
  }
  Node& producer = *edge.producer;
  const bool accumulates = producer.pending_.defined();
  if (!accumulates) {
    producer.pending_ = Tensor::empty(producer.shape_, producer.dtype_, producer.device_);
  }
  return {producer.pending_, accumulates};
}

class Engine {
 public:
  // Runs every node that `root` depends on once, and frees the graph.
  static void run(const Ref<Node>& root, const Tensor& gradient) {
    check_not_freed(*root);
    // The vector is kept between passes, so that a repeated training step does not reallocate it.
    thread_local std::vector<Ref<Node>> nodes;
    const Cleaner cleaner{nodes};
    collect(root, nodes);
    std::ranges::sort(
        nodes, [](const Ref<Node>& a, const Ref<Node>& b) { return a->sequence_ > b->sequence_; });
    root->pending_ = gradient;
    const NoGrad no_grad;
    LeafUses uses;
    if (leaf_watch != nullptr) uses = count_leaf_uses(nodes);
    WorkClock* const clock = watching_clock();
    const auto pass = [&] {
      for (const Ref<Node>& node : nodes) {
        if (node->pending_.defined()) {  // undefined: no node gave it a gradient
          const Tensor dy = std::move(node->pending_);
          node->pending_ = Tensor();
          GradientSink sink(*node);
          if (clock != nullptr) clock->begin(node->worker_);
          node->run(dy, sink);
        }
        if (leaf_watch != nullptr) tell_leaves(*node, uses);
        free_node(*node);
      }
    };
    std::int64_t size = 0;
    for (const Ref<Node>& node : nodes) size += node->shape_.numel();
    thread_local ParallelPass in_parallel;
    gradient.device().type == DeviceType::cpu ? in_parallel.run(size, pass) : pass();
    if (clock != nullptr) clock->begin(nullptr);
  }

 private:
  // Clears incomplete gradients and references to the graph, even when the backward pass throws.
  struct Cleaner {
    std::vector<Ref<Node>>& nodes;
    ~Cleaner() {
      for (const Ref<Node>& node : nodes) node->pending_ = Tensor();
      nodes.clear();
    }
  };

  // Maps each leaf to the number of operations of the backward pass that use the leaf.
  using LeafUses = std::unordered_map<const Variable::State*, int>;
  static LeafUses count_leaf_uses(const std::vector<Ref<Node>>& nodes) {
    LeafUses uses;
    for (const Ref<Node>& node : nodes) {
      for (const Node::Edge& edge : node->edges_) {
        if (edge.leaf) ++uses[edge.leaf.get()];
      }
    }
    return uses;
  }
  static void tell_leaves(const Node& node, LeafUses& uses) {
    for (const Node::Edge& edge : node.edges_) {
      if (edge.leaf && --uses[edge.leaf.get()] == 0) leaf_watch->ready_(Variable(edge.leaf));
    }
  }

  static void check_not_freed(const Node& node) {
    CONVSCOPE_CHECK(!node.freed_, "backward", "expected a graph that still exists, but '",
                    node.name_, "' was freed by an earlier backward(); run the forward pass again");
  }

  static void collect(const Ref<Node>& root, std::vector<Ref<Node>>& nodes) {
    const std::uint64_t pass = ++pass_counter;
    root->visit_ = pass;
    nodes.push_back(root);
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      for (int input = 0; input < nodes[i]->input_count_; ++input) {
        const Ref<Node> producer = nodes[i]->edges_[static_cast<std::size_t>(input)].producer;
        if (!producer || producer->visit_ == pass) continue;
        check_not_freed(*producer);
        producer->visit_ = pass;
        nodes.push_back(producer);
      }
    }
  }

  static void free_node(Node& node) {
    node.freed_ = true;
    node.drop_saved();
    for (Node::Edge& edge : node.edges_) edge = Node::Edge{};
  }
};

void Variable::backward() const {
  CONVSCOPE_CHECK(value().numel() == 1, "backward",
                  "expected a variable of one element (the loss), got ", value().str(),
                  "; for other shapes call backward(gradient)");
  backward(Tensor::full(shape(), 1.0, dtype(), device()));
}

void Variable::backward(const Tensor& gradient) const {
  CONVSCOPE_CHECK(
      requires_grad(), "backward",
      "expected a variable that depends on a leaf with requires_grad, got one that does "
      "not");
  CONVSCOPE_CHECK(gradient.shape() == shape(), "backward", "expected a gradient of shape ", shape(),
                  ", got ", gradient.shape());
  const Ref<Node>& producer = state()->producer;
  if (!producer) {  // a leaf: its gradient ends here
    if (state_->grad_is_zero) {
      state_->grad = gradient.clone();
      state_->grad_is_zero = false;
    } else {
      accumulate(state_->grad, gradient);
    }
    return;
  }
  Engine::run(producer, gradient.clone());  // the node may keep and change it
}

}  // namespace convscope
