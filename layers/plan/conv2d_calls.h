// SPDX-License-Identifier: Apache-2.0
// conv2d_calls.h: the kernel calls of a convolution in a compiled step, with dense weights or with
// the blocks that a mask keeps. A convolution (conv2d_op.cpp) and a block-sparse linear layer
// emit them.
//
// If blocks are used, each call of a training step gathers the blocks from the dense weight before
// the kernel runs, or scatters their gradient into the gradient of the dense weight afterwards.
#pragma once

#include "framework/graph/emitter.h"
#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/sparse_weights.h"
#include "layers/plan/forward_moments.h"
#include "layers/plan/joint_backward.h"

namespace convscope {

// The algorithm and the problem of one direction.
struct Conv2dWork {
  const Conv2dAlgorithm* algorithm = nullptr;
  Conv2dProblem problem = {};  // with the format of the weights
  Direction direction = Direction::forward;
  Ref<SparseWeights> blocks = {};  // null: dense weights
  bool w_is_stored = false;        // w holds the stored blocks only; else they are gathered
};

// Emits the preparation of constant weights. Call it in Emitter::prologue(), and only where
// work.algorithm->prepared_size() is not 0. Returns the slot of the prepared weights.
CONVSCOPE_API Slot emit_preparation(Emitter& emitter, const Conv2dWork& work, const Tensor& w);

struct Conv2dForwardTensors {
  Tensor x = {};            // undefined: the step's images, wherever they are
  Tensor w = {};            // dense; undefined: only the prepared ones exist
  Tensor b = {};            // undefined: none
  Tensor prepared = {};     // from emit_preparation(); undefined: each call prepares if needed
  Tensor y = {};            // assigned
  Tensor x_half = {};       // u8, fp16 operands (dispatch/layout/half_operands.h): x is not read
  Tensor moments = {};      // assigned, if the algorithm computes them (forward_moments.h)
  OperandViews views = {};  // of codes
};
CONVSCOPE_API void emit_forward(Emitter& emitter, const Conv2dWork& work,
                                const Conv2dForwardTensors& tensors,
                                const Conv2dEpilogue& behind = {});
// Emits a call that assigns dx. dy may be undefined where dy_half is defined.
CONVSCOPE_API void emit_backward_data(Emitter& emitter, const Conv2dWork& work, const Tensor& dy,
                                      const Tensor& w, const Tensor& dx,
                                      const Tensor& dy_half = {});
// Emits a call that writes the dense dw. x is as in Conv2dForwardTensors.
CONVSCOPE_API void emit_backward_weight(Emitter& emitter, const Conv2dWork& work, const Tensor& x,
                                        const Tensor& dy, const Emitter::Target& dw,
                                        const Tensor& x_half = {}, const Tensor& dy_half = {});
// Emits dx and dw from one pass over dy. `work` is the work of backward_data, with dense weights.
CONVSCOPE_API void emit_joint_backward(Emitter& emitter, const Conv2dWork& work,
                                       const JointBackward& both, const Tensor& x, const Tensor& dy,
                                       const Tensor& w, const Tensor& dx,
                                       const Emitter::Target& dw);

}  // namespace convscope
