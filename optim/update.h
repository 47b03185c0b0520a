// SPDX-License-Identifier: Apache-2.0
// update.h: one fused pass that updates all parameters of a network.
//
// A network has few large and many small tensors. A loop per tensor would need a parallel region
// (or a kernel launch) per tensor, and would be hard to balance. So the optimisers list their
// tensors in a table, and the kernel cuts the joined element range [0, elements) into chunks. The
// table is allocated once; a step only refills it.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/kernel_slot.h"
#include "framework/ops/update_rule.h"
#include "framework/simd/cpu_isa.h"
#include "framework/tensor.h"
#include "optim/optimizer.h"

namespace convscope {

// The index in UpdateScalars of a flag: 1 if Lookahead moves the slow weights in this step. No rule
// uses this scalar.
inline constexpr int kMovesSlowWeights = 5;

// One parameter in one step. All tensors have `count` elements of type `dtype`.
struct UpdateRow {
  DType dtype = DType::f32;
  std::int64_t begin = 0;  // start of this row in the joined element range
  std::int64_t count = 0;
  void* w = nullptr;
  const void* dw = nullptr;            // null: no update, only the average moves
  void* state[kMaxUpdateStates] = {};  // null: not used by the rule
  // Copies that follow w after its update (slow_weights.h). Null: none.
  void* average = nullptr;
  void* slow = nullptr;
  UpdateScalars scalars;
};

class CONVSCOPE_API UpdateTable {
 public:
  explicit UpdateTable(const std::vector<ParameterGroup>& groups);  // reserves the rows
  void clear(const UpdateRule& rule = {});
  // Adds a parameter and its gradient; returns null if there is no gradient. The caller sets the
  // other fields of the row.
  UpdateRow* add(const Variable& parameter);
  // Adds a tensor that no rule updates; its average follows it.
  void add_average(const Tensor& tensor, const Tensor& average);
  UpdateRow& row(std::size_t i) { return rows_[i]; }
  // Sets how far averages move towards the weights in a step, and slow weights in every k-th step.
  void set_slow_weights(double average_rate, double alpha) {
    average_rate_ = average_rate;
    alpha_ = alpha;
    has_slow_weights_ = true;
  }
  bool has_slow_weights() const { return has_slow_weights_; }
  double average_rate() const { return average_rate_; }
  double alpha() const { return alpha_; }
  // Sets whether add() accepts gradients that zero_grad() has marked as empty. Needed when a step's
  // rows are added before the backward pass of the step has run (device_update.h).
  void take_empty_gradients(bool on) { takes_empty_ = on; }
  const UpdateRule& rule() const { return rule_; }
  const std::vector<UpdateRow>& rows() const { return rows_; }
  std::int64_t elements() const { return elements_; }
  Device device() const { return device_; }

 private:
  UpdateRule rule_;
  std::vector<UpdateRow> rows_;
  std::int64_t elements_ = 0;
  Device device_;
  bool takes_empty_ = false;
  bool has_slow_weights_ = false;
  double average_rate_ = 1, alpha_ = 0;

  UpdateRow& add_row(const Tensor& w);
};

extern CONVSCOPE_API KernelSlot<void(const UpdateTable&)> update_kernel;
// The first kernel returns the joint L2 norm of all gradients in the table. The second kernel
// scales the gradients: dw *= factor.
extern CONVSCOPE_API KernelSlot<double(const UpdateTable&)> gradient_norm_kernel;
extern CONVSCOPE_API KernelSlot<void(const UpdateTable&, double factor)> scale_gradients_kernel;

// Makes the same updates in a CUDA graph. When the kernel runs, it reads the scalars of the step
// from `scalars`, an array in device memory with one element per row of the table.
extern CONVSCOPE_API
    KernelSlot<void(const UpdateTable&, const UpdateScalars* scalars, const UpdateGate& gate)>
        recorded_update_kernel;
struct DeviceLossScale;  // loss_scale.h
// Divides gradients by the scale. A gradient that is not finite sets the flag `overflow`.
extern CONVSCOPE_API KernelSlot<void(const UpdateTable&, DeviceLossScale*)> recorded_unscale_kernel;
// Writes the joint norm to norm[0]. Scales the gradients if the norm exceeds max_norm and is
// finite.
extern CONVSCOPE_API KernelSlot<void(const UpdateTable&, double max_norm, double* norm)>
    recorded_clip_kernel;

// Updates elements [begin, begin + count) of an f32 row; `settings` are those of the rule.
using UpdateLoop = void(const UpdateRow&, std::int64_t begin, std::int64_t count,
                        const void* settings);
struct UpdateKernels {
  UpdateLoop* const* update = nullptr;  // [rules]
  // to += rate * (w - to)
  void (*follow)(float* to, const float* w, std::int64_t count, double rate) = nullptr;
  double (*square_sum)(const float* x, std::int64_t count) = nullptr;
  void (*scale)(float* x, std::int64_t count, float factor) = nullptr;
};
extern IsaTable<UpdateKernels> update_kernels;

}  // namespace convscope
