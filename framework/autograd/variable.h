// SPDX-License-Identifier: Apache-2.0
// variable.h: a tensor with a memory of how it was computed.
//
// Every differentiable operation ends in record(): it keeps the inputs and a closure that turns the
// gradient of the output into gradients of the inputs. backward() walks these closures from the
// loss back to the leaves (engine.cpp). The graph is built anew in each forward pass and is freed
// by the backward pass.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "framework/ref.h"
#include "framework/tensor.h"

namespace convscope {

class Node;

class CONVSCOPE_API Variable {
 public:
  Variable() = default;                                         // undefined
  explicit Variable(Tensor value, bool requires_grad = false);  // a leaf

  bool defined() const { return static_cast<bool>(state_); }
  const Tensor& value() const;
  const Shape& shape() const { return value().shape(); }
  std::int64_t dim(int axis) const { return value().dim(axis); }
  Device device() const { return value().device(); }
  DType dtype() const { return value().dtype(); }

  bool requires_grad() const;           // a leaf that wants one, or computed from such a leaf
  void set_requires_grad(bool wanted);  // leaves only
  bool is_leaf() const;

  // The accumulated gradient of a leaf; undefined before the first backward. Parameter gradients
  // accumulate over backward passes until zero_grad(); gradients in between are not kept.
  const Tensor& grad() const;
  Tensor& grad();
  void zero_grad();  // keeps the memory; the next backward starts from zero

  void set_value(const Tensor& value);  // leaves: replaces the tensor (same shape and dtype)

  // Gradients of this one-element variable with respect to every leaf that wants one. The graph is
  // freed; a second backward through it is an error.
  void backward() const;
  // The same, with the gradient of this variable given (same shape).
  void backward(const Tensor& gradient) const;

  // The same tensor without a history.
  Variable detach() const { return Variable(value()); }

  struct State : RefCounted {
    Tensor value;
    Tensor grad;
    bool requires_grad = false;
    bool grad_is_zero = true;  // grad holds nothing to add to (fresh, or after zero_grad)
    Ref<Node> producer;        // null for a leaf
  };
  State* state() const { return state_.get(); }
  Ref<State> ref() const { return state_; }
  explicit Variable(Ref<State> state) : state_(std::move(state)) {}

 private:
  Ref<State> state_;
};

// Where an operation's closure puts the gradients of its inputs.
class CONVSCOPE_API GradientSink {
 public:
  // False: nobody asked for the gradient of input i; do not compute it.
  bool wants(int input) const;
  // Adds `gradient` to what input i has received so far (the first one is taken as it is). The
  // tensor must be the closure's own: it may be changed later.
  void add(int input, Tensor gradient);
  // Kernels that can add into a buffer: the tensor that collects the gradient of input i, and
  // whether it holds something already (then add to it; otherwise assign all of it).
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

// One operation in the graph: its inputs and its closure. One output.
class CONVSCOPE_API Node : public RefCounted {
 public:
  static constexpr int kMaxInputs = 6;
  const char* name() const { return name_; }
  ~Node() override;

 protected:
  explicit Node(const char* name) : name_(name) {}
  virtual void run(const Tensor& output_gradient, GradientSink& sink) = 0;
  virtual void drop_saved() = 0;  // frees what the closure captured

 private:
  friend class Engine;
  friend class GradientSink;
  friend CONVSCOPE_API Variable attach(Tensor value, const Variable* inputs, int count,
                                       Ref<Node> node);
  // Where the gradient of an input goes: to the node that computed it, or to a leaf. Both null: it
  // is not wanted. The input's value is not kept alive here; a closure that needs it captures it.
  struct Edge {
    Ref<Node> producer;
    Ref<Variable::State> leaf;
  };
  const char* name_;
  int input_count_ = 0;
  bool freed_ = false;
  std::uint64_t sequence_ = 0;    // later nodes have higher numbers
  std::uint64_t visit_ = 0;       // the backward pass that has collected this node
  const void* worker_ = nullptr;  // who made it (framework/memory/work_clock.h)
  Shape shape_;                   // of the output
  DType dtype_ = DType::f32;
  Device device_;
  Tensor pending_;  // gradient of the output, collected so far
  std::array<Edge, kMaxInputs> edges_;
};

CONVSCOPE_API Variable attach(Tensor value, const Variable* inputs, int count, Ref<Node> node);

// False inside a NoGrad scope: operations record nothing.
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

// True when an operation on these inputs must be recorded.
template <class... Inputs>
bool needs_record(const Inputs&... inputs) {
  return grad_enabled() && ((inputs.defined() && inputs.requires_grad()) || ...);
}

// Ends every differentiable operation:
//
//   Variable square(const Variable& x) {
//     Tensor y = ...;                                                // the forward
//     return record("square", y, {x}, [x = x.value()](const Tensor& dy, GradientSink& out) {
//       if (out.wants(0)) out.add(0, ...);                          // dx = 2 x dy
//     });
//   }
//
// What the closure captures is what the operation saves for the backward pass. Undefined inputs
// (an absent bias) are allowed and never want a gradient.
template <class Backward>
Variable record(const char* name, Tensor value, std::initializer_list<Variable> inputs,
                Backward&& backward) {
  bool needed = false;
  for (const Variable& input : inputs)
    needed = needed || (input.defined() && input.requires_grad());
  if (!needed || !grad_enabled()) return Variable(std::move(value));
  struct Closure final : Node {
    Closure(const char* node_name, Backward&& f) : Node(node_name), f_(std::forward<Backward>(f)) {}
    void run(const Tensor& dy, GradientSink& sink) override { (*f_)(dy, sink); }
    void drop_saved() override { f_.reset(); }
    std::optional<std::decay_t<Backward>> f_;
  };
  return attach(std::move(value), inputs.begin(), static_cast<int>(inputs.size()),
                make_ref<Closure>(name, std::forward<Backward>(backward)));
}

}  // namespace convscope
