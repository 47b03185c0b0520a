// SPDX-License-Identifier: Apache-2.0
// variable.cpp: a tensor that remembers how it was computed.
#include "framework/autograd/variable.h"

namespace convscope {
namespace {
thread_local bool grad_is_enabled = true;

Variable::State& checked(const Ref<Variable::State>& state) {
  CONVSCOPE_CHECK(static_cast<bool>(state), "variable",
                  "expected a defined variable, got an empty handle");
  return *state;
}
}  // namespace

bool grad_enabled() { return grad_is_enabled; }
NoGrad::NoGrad() : before_(grad_is_enabled) { grad_is_enabled = false; }
NoGrad::~NoGrad() { grad_is_enabled = before_; }

Variable::Variable(Tensor value, bool requires_grad) : state_(make_ref<State>()) {
  state_->value = std::move(value);
  set_requires_grad(requires_grad);
}

const Tensor& Variable::tensor() const { return checked(state_).value; }

const Tensor& Variable::value() const {
  const State& state = checked(state_);
  if (state.graph != nullptr) throw SymbolicValue();
  return state.value;
}

Variable Variable::symbolic(Graph& graph, int value, const Shape& shape, DType dtype, Device device,
                            bool requires_grad) {
  Variable out(make_ref<State>());
  out.state_->value = Tensor::view(make_ref<Storage>(device, std::size_t{0}), 0, shape, dtype);
  out.state_->requires_grad = requires_grad;
  out.state_->graph = &graph;
  out.state_->graph_value = value;
  return out;
}

bool Variable::requires_grad() const { return checked(state_).requires_grad; }
bool Variable::is_leaf() const { return !checked(state_).producer; }

void Variable::set_requires_grad(bool wanted) {
  State& state = checked(state_);
  CONVSCOPE_CHECK(!state.producer, "variable", "expected a leaf, got the output of an operation");
  CONVSCOPE_CHECK(!wanted || is_floating(state.value.dtype()), "variable",
                  "expected a floating type for a variable with a gradient, got ",
                  state.value.str());
  state.requires_grad = wanted;
}

const Tensor& Variable::grad() const {
  State& state = checked(state_);
  if (state.grad.defined() && state.grad_is_zero) state.grad.zero();
  return state.grad;
}

Tensor& Variable::grad() {
  static_cast<const Variable*>(this)->grad();
  // The caller may write into the tensor, so clear the flag that says that the gradient is zero.
  if (state_->grad.defined()) state_->grad_is_zero = false;
  return state_->grad;
}

void Variable::zero_grad() { checked(state_).grad_is_zero = true; }

void Variable::set_value(const Tensor& value) {
  State& state = checked(state_);
  CONVSCOPE_CHECK(!state.producer, "variable", "expected a leaf, got the output of an operation");
  CONVSCOPE_CHECK(value.shape() == state.value.shape() && value.dtype() == state.value.dtype(),
                  "variable", "expected a value ", state.value.str(), ", got ", value.str());
  state.value = value;
}

}  // namespace convscope
