// SPDX-License-Identifier: Apache-2.0
// simple_operation.h: an operation with one kernel for the forward pass and one for the backward
// pass, written as two functions of tensors:
//
//   class Square final : public SimpleOperation {
//    public:
//     Square() : SimpleOperation("square") {}
//     Keeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
//     void run(const Forward& a) const override { square_kernel.get(a.device())(a.x[0], a.y); }
//     void run(const Backward& a) const override {
//       square_gradient_kernel.get(a.device())(a.x[0], a.dy, a.dx[0]);
//     }
//   };
//   Variable square(const Variable& x) { return apply(std::make_unique<Square>(), {x}); }
#pragma once

#include <vector>

#include "framework/graph/apply.h"
#include "framework/memory/small_vector.h"

namespace convscope {

class CONVSCOPE_API SimpleOperation : public Operation {
 public:
  // The layouts in which the kernels also take images: lanes after the last channel stay 0.
  struct Layouts {
    bool nchw16c;  // on the CPU
    bool nhwc;     // fp16, bf16 or f32, on a GPU
    // Returns the format of an operation that takes the same time in [N,C,H,W] and these layouts.
    CONVSCOPE_API std::optional<Format> format(ActivationLayout layout) const;
  };
  explicit SimpleOperation(const char* kind, Layouts layouts = {false, false})
      : Operation(kind), layouts_(layouts) {}

  // What the forward pass keeps for the backward pass, and scratch memory of the backward pass.
  struct Keeps {
    bool inputs = false;                   // x
    bool output = false;                   // y
    SmallVector<TensorDesc> saved = {};    // extra tensors, written by the forward
    SmallVector<TensorDesc> scratch = {};  // for the backward
  };
  struct Forward {
    SmallVector<Tensor> x;
    Tensor y;                   // overwritten, not added to
    SmallVector<Tensor> saved;  // overwritten; undefined if no gradient is needed
    Device device() const { return y.device(); }
  };
  struct Backward {
    Tensor dy;
    SmallVector<Tensor> x;  // defined when keeps().inputs
    Tensor y;               // defined when keeps().output
    SmallVector<Tensor> saved, scratch;
    SmallVector<Tensor> dx;  // overwritten; undefined: not needed
    Device device() const { return dy.device(); }
  };
  virtual Shape output_shape(const std::vector<Shape>& x) const { return x[0]; }
  virtual Keeps keeps(const std::vector<Shape>&) const { return {}; }
  virtual void run(const Forward& a) const = 0;
  virtual void run(const Backward& a) const = 0;

  // Returns true when `other` may run in the same kernel launch as this operation. A compiled step
  // merges independent operations where a launch takes longer than the kernel's work
  // (layers/plan/operation_group.cpp). run_together() gives the results of all[i]->run(a[i]) for
  // i < count.
  virtual bool runs_with(const SimpleOperation& /*other*/) const { return false; }
  virtual void run_together(const SimpleOperation* const* all, const Forward* a, int count) const {
    for (int i = 0; i < count; ++i) all[i]->run(a[i]);
  }
  virtual void run_together(const SimpleOperation* const* all, const Backward* a, int count) const {
    for (int i = 0; i < count; ++i) all[i]->run(a[i]);
  }

  TensorDesc bind(Graph& graph) override;
  void forward(Emitter& emitter) override;
  void backward(Emitter& emitter) override;
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return layouts_.format(layout);
  }

  // Returns the arguments, for a caller that runs several operations in one launch. If an input
  // already has a gradient, dx is a temporary. The caller then adds the temporaries in `to_add` to
  // the gradients.
  Forward forward_arguments(Emitter& emitter);
  struct Part {
    ValueId value;
    Slot slot;
  };
  Backward backward_arguments(Emitter& emitter, std::vector<Part>& to_add);

 private:
  const std::vector<Shape>& shapes(const Graph& graph) const;
  Shape stored(const Graph& graph, const Shape& shape) const;

  Layouts layouts_;
  SmallVector<Slot> saved_;
};

}  // namespace convscope
