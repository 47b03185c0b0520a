// SPDX-License-Identifier: Apache-2.0
// operation_op.h: runs an Operation (framework/autograd/operation.h) in a compiled step, so that an
// operation is written once. It also runs a layer that has only a forward().
//
//   int Gelu::describe(Graph& graph, int x) { return describe_operation(graph, *this, op_,
//   {x}); }
#pragma once

#include "framework/autograd/operation.h"
#include "layers/module.h"
#include "layers/plan/pointwise_op.h"

namespace convscope {

class CONVSCOPE_API OperationOp final : public PointwiseOp {
 public:
  // Wraps an operation. `module` provides the index of the training step, for example for dropout.
  OperationOp(Ref<const Operation> operation, const Module& module)
      : operation_(std::move(operation)), module_(module) {}
  const Operation& operation() const { return *operation_; }

  std::string text() const override { return operation_->text(); }
  void forward(Emitter& builder) override;
  void backward(Emitter& builder) override;
  std::optional<double> layout_ms(const Graph& graph, ActivationLayout layout) const override;
  bool runs_on_pieces() const override { return operation_->runs_on_pieces(); }
  PointwiseOp::Forward forward_pieces(Emitter& builder) override;
  PointwiseOp::Backward backward_pieces(Emitter& builder) override;

  // Returns the arguments for a caller that runs several operations at once (operation_group.cpp).
  OperationForward forward_arguments(Emitter& builder);
  struct Part {
    ValueId value;
    Slot slot;
  };
  // Returns the arguments. If the input already has a gradient, dx is a temporary. The caller then
  // adds the temporaries in `to_add` to the gradients.
  OperationBackward backward_arguments(Emitter& builder, std::vector<Part>& to_add);

 private:
  std::vector<Shape> shapes(const Emitter& builder) const;
  Shape saved_shape(const Emitter& builder, const Shape& shape) const;

  Ref<const Operation> operation_;
  const Module& module_;
  std::vector<Slot> saved_;
};

// Adds `operation` of the layer `module` on the values x; returns the new value.
CONVSCOPE_API ValueId describe_operation(Graph& graph, const Module& module,
                                         Ref<const Operation> operation, std::vector<ValueId> x);

// Returns the operation of `op` when it is a T, else null.
template <class T>
const T* operation_of(const PlanOp* op) {
  const auto* const known = dynamic_cast<const OperationOp*>(op);
  return known == nullptr ? nullptr : dynamic_cast<const T*>(&known->operation());
}

// Adds a layer as a dynamic graph inside a compiled step: forward() and its backward pass, in
// memory of the allocator. It is not fused with its neighbours, and the step is not recorded.
CONVSCOPE_API ValueId describe_dynamic(Graph& graph, Module& module, ValueId x);

}  // namespace convscope
