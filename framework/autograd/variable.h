// SPDX-License-Identifier: Apache-2.0
// variable.h: a tensor that remembers how it was computed.
//
// Operations compute variables from variables: apply() (framework/graph/apply.h) runs an operation
// and puts it on the tape, with the tensors that its backward pass reads. backward() runs these
// backward passes from the loss to the leaves (engine.cpp). Each forward pass builds a new tape;
// the backward pass frees it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "framework/ref.h"
#include "framework/tensor.h"

namespace convscope {

class Graph;
class Node;

class CONVSCOPE_API Variable {
 public:
  Variable() = default;                                         // undefined
  explicit Variable(Tensor value, bool requires_grad = false);  // a leaf

  bool defined() const { return static_cast<bool>(state_); }
  const Tensor& value() const;  // throws SymbolicValue for a symbolic variable
  const Shape& shape() const { return tensor().shape(); }
  int rank() const { return shape().rank(); }
  std::int64_t dim(int axis) const { return tensor().dim(axis); }
  Device device() const { return tensor().device(); }
  DType dtype() const { return tensor().dtype(); }
  std::string str() const { return defined() ? tensor().str() : "none"; }  // "f32[2,3] cpu"

  // Returns a variable without numbers that stands for a value of a graph (framework/graph/graph.h)
  // while the graph is recorded. graph() is null for all other variables.
  static Variable symbolic(Graph& graph, int value, const Shape& shape, DType dtype, Device device,
                           bool requires_grad);
  Graph* graph() const { return defined() ? state_->graph : nullptr; }
  int graph_value() const { return state_->graph_value; }

  bool requires_grad() const;           // a leaf that needs a gradient, or computed from one
  void set_requires_grad(bool wanted);  // leaves only
  bool is_leaf() const;

  // Returns the gradient of a leaf; undefined before the first backward pass. Backward passes add
  // to the gradient until zero_grad(). Gradients of other variables are not kept.
  const Tensor& grad() const;
  Tensor& grad();
  void zero_grad();  // keeps the memory; the next backward pass starts from zero

  void set_value(const Tensor& value);  // leaves: replaces the tensor (same shape and dtype)

  // Computes gradients of this one-element variable for every leaf with requires_grad. Frees the
  // graph; throws when called again for the same graph.
  void backward() const;
  // Does the same as backward(), but `gradient` is the gradient of this variable (same shape).
  void backward(const Tensor& gradient) const;

  // Returns the same tensor without a history.
  Variable detach() const { return Variable(value()); }

  struct State : RefCounted {
    Tensor value;
    Tensor grad;
    bool requires_grad = false;
    bool grad_is_zero = true;  // nothing to add to (new, or after zero_grad)
    Ref<Node> producer;        // null for a leaf
    Graph* graph = nullptr;    // of a symbolic variable, whose `value` has no memory
    int graph_value = -1;
  };
  State* state() const { return state_.get(); }
  Ref<State> ref() const { return state_; }
  explicit Variable(Ref<State> state) : state_(std::move(state)) {}

 private:
  const Tensor& tensor() const;
  Ref<State> state_;
};

// Thrown when code reads the numbers of a symbolic variable. Module::operator() catches it, and the
// layer runs eagerly inside the compiled step.
struct SymbolicValue {};

// Receives the gradients of an operation's inputs.
class CONVSCOPE_API GradientSink {
 public:
  // Returns false when the gradient of input i is not needed; then do not compute it.
  bool wants(int input) const;
  // Adds `gradient` to the gradient of input i. The first gradient is stored without a copy and may
  // be modified later, so the caller must pass a tensor that nothing else uses.
  void add(int input, Tensor gradient);
  // Returns the tensor that collects the gradient of input i, for kernels that can add into a
  // buffer. A kernel adds to the tensor if it already holds a value, and otherwise overwrites it.
  struct Target {
    Tensor tensor;
    bool accumulate;
  };
  Target target(int input);

 private:
  friend class Node;
  friend class Engine;
  explicit GradientSink(Node& node) : node_(node) {}
  Node& node_;
};

// An operation on the tape, with its inputs and one output.
class CONVSCOPE_API Node : public RefCounted {
 public:
  static constexpr int kMaxInputs = 6;
  const char* name() const { return name_; }
  ~Node() override;

 protected:
  explicit Node(const char* name) : name_(name) {}
  virtual void run(const Tensor& output_gradient, GradientSink& sink) = 0;
  virtual void drop_saved() = 0;  // frees what the operation kept for the backward pass

 private:
  friend class Engine;
  friend class GradientSink;
  friend CONVSCOPE_API Variable attach(Tensor value, const Variable* inputs, int count,
                                       Ref<Node> node);
  // The destination of an input's gradient: the node that computed the input, or a leaf. Both
  // pointers are null when no gradient is needed.
  struct Edge {
    Ref<Node> producer;
    Ref<Variable::State> leaf;
  };
  const char* name_;
  int input_count_ = 0;
  bool freed_ = false;
  std::uint64_t sequence_ = 0;    // later nodes have higher numbers
  std::uint64_t visit_ = 0;       // the last backward pass that collected this node
  const void* worker_ = nullptr;  // the creator (framework/memory/work_clock.h)
  Shape shape_;                   // of the output
  DType dtype_ = DType::f32;
  Device device_;
  Tensor pending_;  // gradient of the output, collected so far
  std::array<Edge, kMaxInputs> edges_;
};

CONVSCOPE_API Variable attach(Tensor value, const Variable* inputs, int count, Ref<Node> node);

// Returns false while a NoGrad object exists in this thread: then operations record nothing.
CONVSCOPE_API bool grad_enabled();

class CONVSCOPE_API NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// Returns true when an operation on these inputs must be recorded.
template <class... Inputs>
bool needs_record(const Inputs&... inputs) {
  return grad_enabled() && ((inputs.defined() && inputs.requires_grad()) || ...);
}

}  // namespace convscope
