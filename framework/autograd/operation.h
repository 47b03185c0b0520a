// SPDX-License-Identifier: Apache-2.0
// operation.h: the base class of operations. An operation is defined once by its forward kernel,
// its backward kernel, and the tensors that it keeps for its gradients. The dynamic graph runs it
// with apply(); the compiled step runs the same definition (layers/plan/operation_op.h). A complete
// operation:
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

// The number of the training step. It is the sum of `offset` and, if `base` is not null, of the
// value in device memory that `base` points to when the kernel runs.
struct OperationStep {
  const std::int64_t* base = nullptr;
  std::int64_t offset = 0;
};

struct TensorSize {
  Shape shape;
  DType dtype = DType::f32;
};

// The tensors that the forward pass keeps for the backward pass, and scratch memory for the
// backward pass.
struct OperationKeeps {
  bool inputs = false;                   // x
  bool output = false;                   // y
  std::vector<TensorSize> saved = {};    // extra tensors, written by the forward
  std::vector<TensorSize> scratch = {};  // for the backward
};

struct OperationForward {
  std::vector<Tensor> x;
  Tensor y;                   // overwritten, not added to
  std::vector<Tensor> saved;  // overwritten; undefined if no gradient is needed
  OperationStep step;
  Device device() const { return y.device(); }
};

struct OperationBackward {
  Tensor dy;
  std::vector<Tensor> x;  // defined when keeps().inputs
  Tensor y;               // defined when keeps().output
  std::vector<Tensor> saved, scratch;
  std::vector<Tensor> dx;  // overwritten; undefined: not needed
  OperationStep step;
  Device device() const { return dy.device(); }
};

class CONVSCOPE_API Operation : public RefCounted {
 public:
  virtual const char* name() const = 0;
  virtual std::string text() const { return name(); }  // in a printed graph: "pad reflect"
  virtual Shape output_shape(const std::vector<Shape>& x) const { return x[0]; }
  virtual OperationKeeps keeps(const std::vector<Shape>&) const { return {}; }
  virtual void forward(const OperationForward& a) const = 0;
  virtual void backward(const OperationBackward& a) const = 0;

  // Returns true when the kernels also take NCHW16c (layers/dispatch/activation_layout.h).
  virtual bool takes_nchw16c() const { return false; }
  // Returns true when the GPU kernels also take fp16/bf16 NHWC images [N,1,H,W,Cp]; then all
  // tensors have this layout.
  virtual bool takes_nhwc() const { return false; }

  // Returns true for an element-wise operation on x[0] with f(0) = 0 and at most one learned
  // scalar. On the CPU, such an operation may be run separately on ranges ("pieces") of the
  // elements of x[0], in any layout. The operation must keep its inputs (keeps().inputs).
  virtual bool runs_on_pieces() const { return false; }
  virtual void begin(const OperationForward&) const {}  // called before the first piece
  virtual void forward_piece(const OperationForward&, const float*, float*, std::int64_t) const {}
  // Writes dv, the gradient of the range v of x[0]. dv is null if this gradient is not needed, and
  // never aliases dy. Returns the range's term of the gradient of the scalar.
  virtual double backward_piece(const OperationBackward&, const float* dy, const float* v,
                                float* dv, std::int64_t count) const;
  virtual void end(const OperationBackward&, double) const {}  // with the sum over all pieces

  // Returns true when `other` may run in the same kernel launch as this operation. A compiled step
  // merges independent operations where a launch takes longer than the kernel's work.
  // forward_together() gives the results of all[i]->forward(a[i]) for i < count, and
  // backward_together() those of all[i]->backward(a[i]).
  virtual bool runs_with(const Operation& /*other*/) const { return false; }
  virtual void forward_together(const Operation* const* all, const OperationForward* a,
                                int count) const;
  virtual void backward_together(const Operation* const* all, const OperationBackward* a,
                                 int count) const;
};

// Runs an operation in the dynamic graph. All x and y have one device and one element type.
CONVSCOPE_API Variable apply(Ref<const Operation> operation, const std::vector<Variable>& x,
                             std::int64_t step = 0);

}  // namespace convscope
