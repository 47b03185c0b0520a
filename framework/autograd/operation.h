// SPDX-License-Identifier: Apache-2.0
// operation.h: an operation, defined once: its kernels forward and backward, and what it keeps for
// its gradients. The dynamic graph runs it by apply(); the planned step runs the same definition
// (layers/plan/operation_op.h). A whole one:
//
//   class Square final : public Operation {
//    public:
//     const char* name() const override { return "square"; }
//     OperationKeeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
//     void forward(const OperationForward& a) const override {
//       square_kernel.get(a.device())(a.x[0], a.y);
//     }
//     void backward(const OperationBackward& a) const override {
//       square_gradient_kernel.get(a.device())(a.x[0], a.dy, a.dx[0]);
//     }
//   };
//   Variable square(const Variable& x) { return apply(make_ref<Square>(), {x}); }
#pragma once

#include <vector>

#include "framework/autograd/variable.h"

namespace convscope {

// The number of the training step: `offset` and, when `base` is there, what it points to in the
// memory of the device when the kernel runs.
struct OperationStep {
  const std::int64_t* base = nullptr;
  std::int64_t offset = 0;
};

struct TensorSize {
  Shape shape;
  DType dtype = DType::f32;
};

// What the forward leaves for the backward, and memory that the backward needs beside.
struct OperationKeeps {
  bool inputs = false;                   // x
  bool output = false;                   // y
  std::vector<TensorSize> saved = {};    // tensors of its own, written by the forward
  std::vector<TensorSize> scratch = {};  // of the backward
};

struct OperationForward {
  std::vector<Tensor> x;
  Tensor y;                   // assigned
  std::vector<Tensor> saved;  // assigned; undefined where no gradient will be asked for
  OperationStep step;
  Device device() const { return y.device(); }
};

struct OperationBackward {
  Tensor dy;
  std::vector<Tensor> x;  // defined when keeps().inputs
  Tensor y;               // defined when keeps().output
  std::vector<Tensor> saved, scratch;
  std::vector<Tensor> dx;  // assigned; undefined: not wanted
  OperationStep step;
  Device device() const { return dy.device(); }
};

class CONVSCOPE_API Operation : public RefCounted {
 public:
  virtual const char* name() const = 0;
  virtual std::string text() const { return name(); }  // in a plan: "pad reflect"
  virtual Shape output_shape(const std::vector<Shape>& x) const { return x[0]; }
  virtual OperationKeeps keeps(const std::vector<Shape>&) const { return {}; }
  virtual void forward(const OperationForward& a) const = 0;
  virtual void backward(const OperationBackward& a) const = 0;

  // Its kernels also take images stored as [N,C/16,H,W,16] (layers/dispatch/activation_layout.h).
  virtual bool takes_blocked() const { return false; }
  // Its kernels on a GPU also take halves stored as [N,1,H,W,Cp], all images of the call alike.
  virtual bool takes_channels_last() const { return false; }

  // For operations that treat every element of x[0] alone, with f(0) = 0, and learn one number at
  // most: others may run them on pieces of x[0], in any layout, on the CPU. keeps().inputs is set.
  virtual bool runs_on_pieces() const { return false; }
  virtual void begin(const OperationForward&) const {}  // before the first piece
  virtual void forward_piece(const OperationForward&, const float*, float*, std::int64_t) const {}
  // Assigns dv (null: not wanted; never dy); returns the piece's part of the number's gradient.
  virtual double backward_piece(const OperationBackward&, const float* dy, const float* v,
                                float* dv, std::int64_t count) const;
  virtual void end(const OperationBackward&, double) const {}  // with the sum over all pieces

  // Operations that do not wait for each other may run together where each launch of a kernel costs
  // more than its work: `all` and `a` have `count` elements, and each does what its own forward()
  // or backward() would. True: `other` may run together with this one.
  virtual bool runs_with(const Operation& /*other*/) const { return false; }
  virtual void forward_together(const Operation* const* all, const OperationForward* a,
                                int count) const;
  virtual void backward_together(const Operation* const* all, const OperationBackward* a,
                                 int count) const;
};

// y of the dynamic graph; x of one device and element type, which are those of y.
CONVSCOPE_API Variable apply(Ref<const Operation> operation, const std::vector<Variable>& x,
                             std::int64_t step = 0);

}  // namespace convscope
