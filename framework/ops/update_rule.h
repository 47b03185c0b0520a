// SPDX-License-Identifier: Apache-2.0
// update_rule.h: an update rule (SGD, Adam, ...) computes the new weight from weight, gradient and
// states, element by element. This file defines what all rules share.
//
// A rule is one file in framework/ops/update_rules/. The file defines a struct whose name ends in
// Rule, and the build lists all such structs in <convscope/update_rules.h>. All else comes from
// this list: an optimiser for each rule (optim/rule_optimizer.cpp), and the kernels. There are
// plain loops in f64, vector loops, a CUDA kernel that updates all parameters in one launch, and a
// CUDA kernel that also computes the gradients. A rule has these members:
//
//   kName, kDoc, kLearningRate  name in configs, one line for users, default learning rate
//   kStates, kStateNames        number of state tensors, which begin as 0, and their names in files
//   fields(), Rule(Options)     the settings with their documentation; the constructor reads them
//   refusal()                   optional: why the settings contradict each other, or ""
//   states()                    optional: number of states with these settings, 0 or kStates
//   Scalars, scalars(step)      the numbers in the update of one parameter, computed in double
//   Step<Math>                  made from Scalars and rule; run(w, dw, state) updates w and state[]
//   Kernels                     the rule that defines Step: this rule, or the rule that it extends
//
// `Math` is the arithmetic of a kernel. Math::Value is float, double or a vector of floats.
// number(x) rounds a double to this type, fma(a, b, c) = a b + c, mul_sub(a, b, c) = a b - c. There
// are also sqrt(x) and sign(x).
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "framework/dtype.h"
#include "framework/ops/loss_scale_state.h"

#if defined(__CUDACC__)
#define CONVSCOPE_HOST_DEVICE_INLINE __device__ __forceinline__
#else
#define CONVSCOPE_HOST_DEVICE_INLINE inline __attribute__((always_inline))
#endif

namespace convscope {

// One update of one parameter.
struct UpdateStep {
  std::int32_t t = 0;       // 1: the first update of the parameter
  double rate = 0;          // learning rate of its group
  double weight_decay = 0;  // of its group
  bool operator==(const UpdateStep&) const = default;
};

inline constexpr int kMaxUpdateStates = 2;

// Scalars of any rule. In recorded steps, kernels read them from device memory.
struct UpdateScalars {
  double value[6] = {};
  template <class Scalars>
  void set(const Scalars& scalars) {
    static_assert(sizeof(Scalars) <= sizeof(value), "value[] is too short for this rule");
    std::memcpy(value, &scalars, sizeof(scalars));
  }
  template <class Scalars>
  CONVSCOPE_HOST_DEVICE_INLINE const Scalars& as() const {
    return *reinterpret_cast<const Scalars*>(value);
  }
};

// A rule with its settings. An optimiser owns the settings.
struct UpdateRule {
  int index = 0;                   // in the list of all rules
  const void* settings = nullptr;  // of that rule's type
};

template <class... Rules>
struct UpdateRuleList {};

// Calls body(settings), with the type whose kernels the rule uses.
template <class... Rules, class Body>
void visit_rule(UpdateRuleList<Rules...>, const UpdateRule& rule, const Body& body) {
  const auto call = [&]<class Rule>(const Rule* settings) {
    body(static_cast<const typename Rule::Kernels&>(*settings));
  };
  int index = 0;
  ((index++ == rule.index ? call(static_cast<const Rules*>(rule.settings)) : void()), ...);
}

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
  float* state[kMaxUpdateStates] = {};     // null: not used by the rule
  const UpdateScalars* scalars = nullptr;  // in device memory, read when the kernel runs
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
