// SPDX-License-Identifier: Apache-2.0
// conv2d_calls.h: the calls of a convolution with dense weights or with the blocks that a mask
// keeps. Convolutions (conv2d_op.cpp) and block-sparse linear layers emit them.
//
// If blocks are used, a training step gathers the blocks from the dense weight before the kernel
// runs, or scatters their gradient into the gradient of the dense weight afterwards.
#pragma once

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/select.h"
#include "layers/plan/emit_call.h"
#include "layers/plan/forward_moments.h"
#include "layers/plan/joint_backward.h"

namespace convscope {

// The choice and the problem of one direction.
struct Conv2dWork {
  Conv2dChoice choice = {};
  Conv2dProblem problem = {};  // with the format of the weights
  Direction direction = Direction::forward;
  Ref<SparseWeights> blocks = {};  // null: dense weights
  bool w_is_stored = false;        // w holds the stored blocks only; else they are gathered
};

// Emits the preparation of constant weights. Call it in Emitter::prologue(), and only where the
// algorithm's prepared_size() is not 0. Returns the slot of the prepared weights.
CONVSCOPE_API Slot emit_preparation(Emitter& emitter, const Conv2dWork& work, Tensor w);

// Names the weight for the next call; emits a call that gathers its blocks first, if blocks are
// used. Name the other operands after it, and the image by operand_of(), which emits no call. Sets
// the positions of the blocks in `views`.
CONVSCOPE_API Tensor weight_operand(Emitter& emitter, const Conv2dWork& work, const Tensor& w,
                                    OperandViews& views);

// Emits the call that adds to or assigns the dense gradient of the weight. `operands` has x and dy.
CONVSCOPE_API void emit_weight_gradient(Emitter& emitter, const Conv2dWork& work, Operands operands,
                                        ValueId weight);

// Emits the forward call of an algorithm that also assigns `moments` (forward_moments.h).
CONVSCOPE_API void emit_forward_moments(Emitter& emitter, const Conv2dWork& work,
                                        const ForwardMoments& kernel, const Operands& operands,
                                        const Tensor& moments);
// Emits dx and dw from one pass over dy. `work` is the work of backward_data, with dense weights.
CONVSCOPE_API void emit_joint_backward(Emitter& emitter, const Conv2dWork& work,
                                       const JointBackward& both, const Operand& x,
                                       const Tensor& dy, const Tensor& w, const Tensor& dx,
                                       const Emitter::Target& dw);

}  // namespace convscope
