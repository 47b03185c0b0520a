// SPDX-License-Identifier: Apache-2.0
// conv2d_calls.h: the kernel calls of a convolution in a planned step, with dense weights or with
// the blocks that a mask keeps. A convolution emits them (conv2d_plan.cpp), and so does a linear
// layer that runs from blocks.
//
// Of blocks: each call of a training step gathers them out of the dense weight first, or puts their
// gradient back into the dense one.
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

// Weights that stay as they are, prepared; to be called in PlanBuilder::prologue(). Only where
// work.algorithm->prepared_size() is not 0.
CONVSCOPE_API Slot emit_preparation(PlanBuilder& builder, const Conv2dWork& work, const Tensor& w);

struct Conv2dForwardTensors {
  Tensor x = {};          // undefined: the images, wherever they lie in this step
  Tensor w = {};          // dense; undefined: only the prepared ones are left
  Tensor b = {};          // undefined: none
  Tensor prepared = {};   // by emit_preparation(); undefined: in each call, where there is a need
  Tensor y = {};          // assigned
  Tensor x_factors = {};  // u8, a block of factors (dispatch/layout/half_factors.h): x is not read
  Tensor moments = {};    // assigned, by a card that has them (forward_moments.h)
};
CONVSCOPE_API void emit_forward(PlanBuilder& builder, const Conv2dWork& work,
                                const Conv2dForwardTensors& tensors,
                                const Conv2dEpilogue& behind = {});
// dx is assigned. Of what is there as a block of factors the image may be undefined.
CONVSCOPE_API void emit_backward_data(PlanBuilder& builder, const Conv2dWork& work,
                                      const Tensor& dy, const Tensor& w, const Tensor& dx,
                                      const Tensor& dy_factors = {});
// x as in forward; dw is dense.
CONVSCOPE_API void emit_backward_weight(PlanBuilder& builder, const Conv2dWork& work,
                                        const Tensor& x, const Tensor& dy,
                                        const PlanBuilder::Target& dw, const Tensor& x_factors = {},
                                        const Tensor& dy_factors = {});
// Both from one walk over dy. `work`: of backward_data, with dense weights.
CONVSCOPE_API void emit_joint_backward(PlanBuilder& builder, const Conv2dWork& work,
                                       const JointBackward& both, const Tensor& x, const Tensor& dy,
                                       const Tensor& w, const Tensor& dx,
                                       const PlanBuilder::Target& dw);

}  // namespace convscope
