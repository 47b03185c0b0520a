// SPDX-License-Identifier: Apache-2.0
// update_rule.h: what an optimiser does to a parameter, in numbers: for the kernels of optim/, and
// for kernels that make gradients and change the weights with them at once.
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

// The numbers of a row that change from step to step, as they lie in device memory.
struct UpdateFactors {
  double rate, decay, shrink, keep, gain,
      v_scale;  // UpdateRow in optim/update.h says what they are
};

// In device memory; null: nothing stands in the way.
struct UpdateGate {
  const float* loss = nullptr;
  const std::int32_t* halted = nullptr;
  const std::int32_t* overflow = nullptr;  // of this step (DeviceLossScale)
};

// A weight as kernels multiply it: rounded to `factors`, a half type, and stored so or as f32. It
// lies element by element as the weight does.
struct WeightCopy {
  void* to = nullptr;  // null: there is none
  DType factors = DType::f32;
  bool as_floats = false;
};

// The update of one step by those who make the gradients. They write dw as well.
struct JoinedRow {
  const void* dw = nullptr;  // whose row it is
  float* w = nullptr;
  float* m = nullptr;                      // SGD: null without momentum
  float* v = nullptr;                      // Adam alone
  const UpdateFactors* factors = nullptr;  // in device memory, read when the kernel runs
  WeightCopy copy = {};  // of w behind the update; written where the gate is closed, too
};
struct JoinedUpdate {
  std::vector<JoinedRow> rows;
  UpdateRule rule;
  UpdateGate gate;
  // With one, gradients are divided by it and looked at; the update stands behind.
  DeviceLossScale* unscale = nullptr;
};

}  // namespace convscope
