// SPDX-License-Identifier: Apache-2.0
// quantizer.h: rounds a value to integer multiples of a step size. It is a transform between a
// layer and its weight, or between a layer and its input (Module::add_weight_transform).
//
// Shapes      x -> x_hat, the same shape; the step size is [1], or [K] for a weight [K,...]
// Formula     lsq.h; codes and step sizes: integer_grid.h
// Methods     lsq         the step size is a parameter and learns
//             minmax      the step size stays at its calibrated value: max|x| / Qp
//             percentile  as minmax, with a percentile of |x|
// Calibration uses the first `calibration_batches` batches in training. Each gives a step size; the
//             result is their mean, or for minmax their maximum. An evaluation before calibration
//             is an error. For lsq, `init` is the rule of the calibration, and learning starts from
//             its result.
// Step        log      learns t = log s, with the gradient scale divided by s^2 (log_rate). An
//                      update changes s by a factor of at most kMaxChange, so one extreme
//                      gradient cannot make s useless.
//             floored  learns s itself, as the paper does.
//             Both variants keep s within [s0 / kFloor, s0 * kCeiling]; s0 is the calibrated s.
// Waiting     with `waits`, x passes unchanged until begin(); then the quantiser calibrates on the
//             trained network. With a calibrated s from a checkpoint the quantiser does not wait.
// State       parameter log_step or step (lsq; else buffer step), buffers first_step, last_step,
//             batches_seen: a run resumed from a checkpoint continues with the same bits.
// Usage       conv.add_weight_transform("weight_quantizer",
//                                       std::make_shared<Quantizer>(QuantizerOptions{.bits = 4}));
#pragma once

#include <string>

#include "layers/module.h"
#include "quant/calibrate.h"
#include "quant/lsq.h"

namespace convscope {

enum class QuantMethod { lsq, minmax, percentile };
enum class QuantStep { log, floored };

struct QuantizerOptions {
  int bits = 8;
  bool is_signed = true;
  QuantMethod method = QuantMethod::lsq;
  QuantStep step = QuantStep::log;
  StepRule init = StepRule::mse;  // of lsq
  double percentile = 99.9;       // percent of |x| below the highest code
  std::int64_t calibration_batches = 1;
  std::int64_t channels = 0;  // steps for a weight [channels,...]; 0: one step for all
  bool is_weight = true;      // what N of the gradient scale counts (lsq.h)
  bool waits = false;         // until begin()
  Device device = {};
};

class CONVSCOPE_API Quantizer final : public Module {
 public:
  static constexpr double kMaxChange = 1.1;
  static constexpr double kFloor = 16;
  static constexpr double kCeiling = 1024;

  explicit Quantizer(const QuantizerOptions& options);
  std::string kind() const override { return "quantizer"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override { return input; }

  const QuantizerOptions& options() const { return options_; }
  const IntegerGrid& grid() const { return grid_; }
  bool is_calibrated() const;
  void begin() { waits_ = false; }
  // Passes x unchanged in any state, to compare networks without rounding.
  void bypass(bool on) { bypassed_ = on; }
  void execute_on_integers(IntegerUse use) { integers_ = use; }
  IntegerUse integers() const { return integers_; }
  bool is_active() const { return !bypassed_ && (!waits_ || is_calibrated()); }
  Tensor steps() const;  // s, f32 [1] or [channels], a copy on the CPU
  // Sets calibrated step sizes, without bounds. The log variant takes the nearest step size that it
  // can represent. A step size from steps() is represented exactly.
  void set_steps(const Tensor& steps);
  // Sets how many unmasked values of a pruned weight share a step size; 0 means that the weight is
  // not pruned. Only unmasked values contribute to the gradient of the step size. So only they
  // count in N of the gradient scale, and the calibration skips zeros.
  void set_kept(std::int64_t values) { kept_ = values; }
  // Sets whether each forward pass counts the values outside the grid: v / s < -Qn or > Qp.
  void observe(bool on) { observing_ = on; }
  struct Observed {
    Tensor steps;                // s of the last observed forward pass; undefined: none yet
    double clipped_percent = 0;  // of its values
  };
  const Observed& observed() const { return observed_; }
  // Returns a description: "signed 4 bits, log step".
  std::string str() const;

 private:
  void moved_to(Device device) override { options_.device = device; }
  void calibrate(const Tensor& x);
  void count_clipped(const Tensor& x);
  double seen() const { return batches_seen_.item(); }
  bool calibrates() const;  // in the next forward
  Variable recorded(const Variable& x);
  Variable rounded(const Variable& v) const;

  QuantizerOptions options_;
  IntegerGrid grid_;
  StepForm form_;
  bool waits_;
  bool bypassed_ = false;
  bool observing_ = false;
  IntegerUse integers_ = IntegerUse::never;
  std::int64_t kept_ = 0;
  Observed observed_;
  Variable step_;  // s, or log s
  Tensor first_step_, last_step_, batches_seen_;
};

}  // namespace convscope
