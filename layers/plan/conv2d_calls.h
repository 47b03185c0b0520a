// SPDX-License-Identifier: Apache-2.0
// conv2d_calls.h: the kernel calls of a convolution in a compiled step, with dense weights or with
// the blocks that a mask keeps. A convolution (conv2d_plan.cpp) and a block-sparse linear layer
// emit them.
//
// With blocks: each call of a training step first gathers them from the dense weight, or scatters
// their gradient to the dense one.
#pragma once

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/sparse_weights.h"
#include "layers/plan/forward_moments.h"
#include "layers/plan/joint_backward.h"
#include "layers/plan/plan_builder.h"

namespace convscope {

// One direction.
struct Conv2dWork {
  const Conv2dAlgorithm* algorithm = nullptr;
  Conv2dProblem problem = {};  // with the format of the weights
  Direction direction = Direction::forward;
  Ref<SparseWeights> blocks = {};  // null: dense weights
};

// Emits the preparation of constant weights; call it in PlanBuilder::prologue(). Only where
// work.algorithm->prepared_size() is not 0.
CONVSCOPE_API Slot emit_preparation(PlanBuilder& builder, const Conv2dWork& work, const Tensor& w);

struct Conv2dForwardTensors {
  Tensor x = {};          // undefined: the step's images, wherever they are
  Tensor w = {};          // dense; undefined: only the prepared ones exist
  Tensor b = {};          // undefined: none
  Tensor prepared = {};   // by emit_preparation(); undefined: prepared in each call if needed
  Tensor y = {};          // assigned
  Tensor x_factors = {};  // u8, fp16 operands (dispatch/layout/half_factors.h): x is not read
  Tensor moments = {};    // assigned, if the algorithm computes them (forward_moments.h)
};
CONVSCOPE_API void emit_forward(PlanBuilder& builder, const Conv2dWork& work,
                                const Conv2dForwardTensors& tensors,
                                const Conv2dEpilogue& behind = {});
// Emits dx, assigned. An image may be undefined where its block of fp16 operands is given.
CONVSCOPE_API void emit_backward_data(PlanBuilder& builder, const Conv2dWork& work,
                                      const Tensor& dy, const Tensor& w, const Tensor& dx,
                                      const Tensor& dy_factors = {});
// Emits dw, dense; x as in forward.
CONVSCOPE_API void emit_backward_weight(PlanBuilder& builder, const Conv2dWork& work,
                                        const Tensor& x, const Tensor& dy,
                                        const PlanBuilder::Target& dw, const Tensor& x_factors = {},
                                        const Tensor& dy_factors = {});
// Emits dx and dw from one pass over dy. `work`: of backward_data, with dense weights.
CONVSCOPE_API void emit_joint_backward(PlanBuilder& builder, const Conv2dWork& work,
                                       const JointBackward& both, const Tensor& x, const Tensor& dy,
                                       const Tensor& w, const Tensor& dx,
                                       const PlanBuilder::Target& dw);

}  // namespace convscope
