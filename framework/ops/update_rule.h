// SPDX-License-Identifier: Apache-2.0
// update_rule.h: the settings and values with which an optimiser updates a parameter. The kernels
// of optim/ use them. So do kernels that compute a gradient and update the weight in one launch.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/dtype.h"
#include "framework/ops/loss_scale_state.h"

namespace convscope {

struct SgdRule {
  double momentum = 0;
  bool nesterov = false;
};
struct AdamRule {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
struct UpdateRule {
  bool adam = false;
  SgdRule sgd;
  AdamRule adam_rule;
};

// The values in the update of one parameter (a row of the update table) that change in each step.
// The values are in device memory.
struct UpdateFactors {
  double rate, decay, shrink, keep, gain,
      v_scale;  // see UpdateRow in optim/update.h
};

// Pointers to flags in device memory that prevent the update; a null pointer means no such flag.
struct UpdateGate {
  const float* loss = nullptr;
  const std::int32_t* halted = nullptr;
  const std::int32_t* overflow = nullptr;  // of this step (DeviceLossScale)
};

// A copy of a weight that kernels multiply. It is rounded to `operand_type` (fp16 or bf16), and
// stored in this type or as f32, with the elements in the weight's order.
struct WeightCopy {
  void* to = nullptr;  // null: no copy
  DType operand_type = DType::f32;
  bool as_floats = false;
};

// The update of one step, done by the kernels that compute the gradients. These kernels write dw as
// well.
struct JoinedRow {
  const void* dw = nullptr;  // identifies the row
  float* w = nullptr;
  float* m = nullptr;                      // SGD: null without momentum
  float* v = nullptr;                      // Adam only
  const UpdateFactors* factors = nullptr;  // in device memory, read when the kernel runs
  WeightCopy copy = {};                    // of the updated w; written even if the gate is closed
};
struct JoinedUpdate {
  std::vector<JoinedRow> rows;
  UpdateRule rule;
  UpdateGate gate;
  // If set, the kernels only divide gradients by this scale and check them for overflow. Other
  // kernels update the weights later.
  DeviceLossScale* unscale = nullptr;
};

}  // namespace convscope
