// SPDX-License-Identifier: Apache-2.0
// linear_fused.h: the linear layer of a compiled step fused with its neighbours, for devices where
// each launch takes time. There is one call for forward, one for backward, and one for the last
// layer with the loss. A device without such a kernel leaves its entry empty; the compiled step
// then makes separate calls.
//
// Workspaces need no initialisation and may be reused after the call. All tensors are f32,
// contiguous; x [N,I], w [O,I], b [O] (undefined: none), y and dy [N,O]. If `operand_type` is a
// half-precision type, x, w and dy are rounded to it before products, to nearest, ties to even.
// Products and sums stay f32, and so do operands that are only added (b, and dy in db).
#pragma once

#include "framework/kernel_slot.h"
#include "framework/tensor.h"

namespace convscope {

// y = relu(x w^T + b); the ReLU is optional.
struct LinearForwardArgs {
  Tensor x, w, b;
  bool relu = false;
  Tensor y;  // assigned
  void* workspace = nullptr;
  DType operand_type = DType::f32;
};
struct LinearForward {
  std::size_t (*workspace_bytes)(const Shape& x, const Shape& w, DType operand_type);  // null: none
  void (*run)(const LinearForwardArgs&);
};

// Computes dw, db and dx of the layer. With y, the gradient g is dy where y > 0, else 0; without y,
// g is dy.
struct LinearBackwardArgs {
  Tensor x, w;
  Tensor y = {};                     // undefined: no ReLU
  Tensor dy;                         // may be changed
  Tensor dw = {}, db = {}, dx = {};  // undefined: not needed
  bool accumulate_dw = false;        // added to; assigned otherwise
  bool accumulate_db = false;
  bool accumulate_dx = false;
  void* workspace = nullptr;
  DType operand_type = DType::f32;
};
struct LinearBackward {
  std::size_t (*workspace_bytes)(const Shape& x, const Shape& w, DType operand_type);  // null: none
  void (*run)(const LinearBackwardArgs&);
};

// The last layer and the loss: logits = x w^T + b; p = softmax(logits);
//   loss = mean of -log p[n,label[n]];  dlogits = (p - onehot(label)) / N;
//   correct = images whose largest logit (the first of equal ones) is at their label.
// A label outside [0,O) gives its row a loss of 0 and no gradient. A loss that is not finite is
// stored unchanged.
struct LinearLossArgs {
  Tensor x, w, b;
  Tensor labels;   // i32 [N]
  Tensor dlogits;  // [N,O], assigned; undefined: not needed
  // Factor of dlogits, in device memory; null: 1.
  const double* loss_scale = nullptr;
  Tensor loss;     // f32 [1], assigned
  Tensor correct;  // i32 [1], assigned
  void* workspace = nullptr;
  DType operand_type = DType::f32;
};
struct LinearLoss {
  bool (*supports)(const Shape& x, const Shape& w);  // null: any sizes
  std::size_t (*workspace_bytes)(const Shape& x, const Shape& w, DType operand_type);  // null: none
  void (*run)(const LinearLossArgs&);
};

// The kernels of one device, registered at the end of linear_fused_cuda.cu:
//   const bool registered = register_linear_fused(DeviceType::cuda, {.forward = ...});
struct LinearFused {
  LinearForward forward = {};  // run null: not offered
  LinearBackward backward = {};
  LinearLoss loss = {};
};
CONVSCOPE_API bool register_linear_fused(DeviceType type, const LinearFused& kernels);
CONVSCOPE_API const LinearFused& linear_fused(Device device);

}  // namespace convscope
