// SPDX-License-Identifier: Apache-2.0
// linear_tail.h: the last linear layers of a classifier with the loss, in two launches: one for all
// work image by image (forward, loss, gradients of the values) and one for the gradients of all
// weights. For devices where each launch costs. linear_tail_plan.cpp forms it.
//
// x [N,I], w [O,I], b [O], h [N,O], g [N,O], f32, contiguous:
//   h = relu(x w^T + b), the x of the next layer; the last layer gives logits, without ReLU.
//   Loss, dlogits and right answers as in linear_fused.h.
//   g = gradient of the ReLU's input;  dw = g^T x, db = sum of g over n; dx of the first layer
// If `factors` is a half-precision type: as in linear_fused.h; h is stored rounded.
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
  // w in the half-precision type `factors`, [O,I], 16-byte aligned, if it exists already; null: w
  // is rounded here.
  const void* w_as_halves = nullptr;
  Tensor h;  // rounded to `factors`: only products read it; undefined in the last layer
  Tensor g;  // undefined: no gradients
  Tensor g_factors = {};  // g rounded to a half-precision type; undefined: not needed
  bool relu = false;
  Tensor dw = {}, db = {};  // undefined: not needed
  bool accumulate_dw = false, accumulate_db = false;
};
struct LinearTailArgs {
  int layers = 0;
  LinearTailLayer layer[kMaxTailLayers];
  Tensor x, dx;               // dx undefined: not needed
  bool x_is_rounded = false;  // to `factors`
  Tensor labels, loss, correct;
  const double* loss_scale = nullptr;  // on the device: the factor of dlogits; null: 1
  DType factors = DType::f32;
  // For the first launch: the previous kernel, which may still run, writes neither weights nor
  // biases.
  bool weights_are_there = false;
  // For the second launch: when it begins, the first one has ended, and the previous kernel, which
  // may still run, writes none of its inputs. So it need not wait for that kernel before its work.
  bool rows_ended = false;
  // For the second launch: other gradients that it computes, too, and the update that it then
  // applies with all gradients to the weights; null: none.
  PieceSums sums;
  const JoinedUpdate* update = nullptr;
};

// Returns "" or why the kernels do not compute `n` images. `sizes`: I of all layers, then the
// number of classes.
CONVSCOPE_API std::string linear_tail_refusal(std::int64_t n,
                                              const std::vector<std::int64_t>& sizes);

extern CONVSCOPE_API KernelSlot<void(const LinearTailArgs&)> linear_tail_rows_kernel;
extern CONVSCOPE_API KernelSlot<void(const LinearTailArgs&)> linear_tail_weights_kernel;

}  // namespace convscope
