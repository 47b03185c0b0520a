// SPDX-License-Identifier: Apache-2.0
// linear_tail.h: the last linear layers of a classifier with the loss, in one launch for all that
// is done image by image (forward, loss, gradients of the values) and one for the gradients of all
// weights. For devices where each launch costs. linear_tail_plan.cpp forms it.
//
// x [N,I], w [O,I], b [O], h [N,O], g [N,O], f32, contiguous:
//   h = relu(x w^T + b), the x of the next layer; the last layer gives logits, without ReLU
//   loss, dlogits and right answers as linear_fused.h says
//   g = gradient of what stands before the ReLU; dw = g^T x, db = sum of g over n; dx of the first
// `factors` of a half type: as linear_fused.h says; h is stored rounded.
#pragma once

#include <string>
#include <vector>

#include "framework/kernel_slot.h"
#include "framework/ops/update_rule.h"
#include "framework/tensor.h"
#include "layers/plan/piece_sums.h"

namespace convscope {

inline constexpr int kMostTailLayers = 4;

struct LinearTailLayer {
  Tensor w, b;  // b undefined: none
  // w as halves of the type `factors`, [O,I], on a multiple of 16 bytes, when somebody has made
  // them; null: w is rounded here.
  const void* w_as_halves = nullptr;
  Tensor h;  // as factors, since nobody reads it otherwise; of the last layer undefined
  Tensor g;  // undefined: no gradients
  Tensor g_factors = {};  // g, rounded to a half type; undefined: not wanted
  bool relu = false;
  Tensor dw = {}, db = {};  // undefined: not wanted
  bool accumulate_dw = false, accumulate_db = false;
};
struct LinearTailArgs {
  int layers = 0;
  LinearTailLayer layer[kMostTailLayers];
  Tensor x, dx;               // dx undefined: not wanted
  bool x_is_rounded = false;  // to `factors`
  Tensor labels, loss, correct;
  const double* loss_scale = nullptr;  // on the device: what dlogits are multiplied by; null: 1
  DType factors = DType::f32;
  // Of the first launch: the kernel before it, which may still run, writes neither weights nor
  // biases.
  bool weights_are_there = false;
  // Of the second launch: when it begins, the first one has ended, and the kernel before, which may
  // still run, writes nothing of this. So it need not wait for that one before its work.
  bool rows_ended = false;
  // Of the second launch: gradients of others that it makes, too; and what it then does with all of
  // them to the weights, null: nothing.
  PieceSums sums;
  const JoinedUpdate* update = nullptr;
};

// [N], sizes I of all layers, then the number of classes. "" or why the kernels do not compute it.
CONVSCOPE_API std::string linear_tail_refusal(std::int64_t n,
                                              const std::vector<std::int64_t>& sizes);

extern CONVSCOPE_API KernelSlot<void(const LinearTailArgs&)> linear_tail_rows_kernel;
extern CONVSCOPE_API KernelSlot<void(const LinearTailArgs&)> linear_tail_weights_kernel;

}  // namespace convscope
