// SPDX-License-Identifier: Apache-2.0
// linear_tail.h: the last linear layers of a classifier and the loss, in two launches, for devices
// where each launch takes time. The first launch processes each image separately (forward, loss,
// gradients of the values), the second launch computes the gradients of all weights.
// linear_tail_plan.cpp creates the operation.
//
// x [N,I], w [O,I], b [O], h [N,O], g [N,O], f32, contiguous:
//   h = relu(x w^T + b), the x of the next layer; the last layer gives logits, without ReLU.
//   Loss, dlogits and right answers as in linear_fused.h.
//   g = gradient of the ReLU's input;  dw = g^T x, db = sum of g over n; dx of the first layer
// A half-precision type `operand_type` rounds operands as in linear_fused.h; h is stored rounded.
#pragma once

#include <string>
#include <vector>

#include "framework/kernel_slot.h"
#include "framework/ops/update_rule.h"
#include "framework/tensor.h"
#include "layers/plan/piece_sums.h"

namespace convscope {

inline constexpr int kMaxTailLayers = 4;

struct LinearTailLayer {
  Tensor w, b;  // b undefined: none
  // A copy of w, rounded to the half-precision `operand_type`, [O,I], 16-byte aligned. If
  // it is null, the kernel rounds w.
  const void* w_half = nullptr;
  Tensor h;  // rounded to `operand_type`: only products read it; undefined in the last layer
  Tensor g;  // undefined: no gradients
  Tensor g_half = {};  // g rounded to a half-precision type; undefined: not needed
  bool relu = false;
  Tensor dw = {}, db = {};  // undefined: not needed
  bool accumulate_dw = false, accumulate_db = false;
};
struct LinearTailArgs {
  int layers = 0;
  LinearTailLayer layer[kMaxTailLayers];
  Tensor x, dx;               // dx undefined: not needed
  bool x_is_rounded = false;  // to `operand_type`
  Tensor labels, loss, correct;
  const double* loss_scale = nullptr;  // in device memory: multiplies dlogits; null: 1
  DType operand_type = DType::f32;
  // Tells the first launch that the previous kernel, which may still run, writes neither weights
  // nor biases.
  bool weights_are_there = false;
  // Tells the second launch that the first launch ended before the second one begins, and that the
  // previous kernel, which may still run, writes none of the inputs. So the second launch need not
  // wait for the previous kernel.
  bool rows_ended = false;
  // The second launch also adds up the partial gradients `sums` of other kernels and applies
  // `update` to the weights; null: no update.
  PieceSums sums;
  const JoinedUpdate* update = nullptr;
};

// Returns "", or the reason why the kernels do not support `n` images. `sizes` has I of all layers,
// then the number of classes.
CONVSCOPE_API std::string linear_tail_refusal(std::int64_t n,
                                              const std::vector<std::int64_t>& sizes);

extern CONVSCOPE_API KernelSlot<void(const LinearTailArgs&)> linear_tail_rows_kernel;
extern CONVSCOPE_API KernelSlot<void(const LinearTailArgs&)> linear_tail_weights_kernel;

}  // namespace convscope
