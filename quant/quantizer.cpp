// SPDX-License-Identifier: Apache-2.0
// quantizer.cpp: rounds a value to integer multiples of a step size.
#include "quant/quantizer.h"

#include <algorithm>
#include <cmath>

#include "framework/graph/graph.h"

namespace convscope {

Quantizer::Quantizer(const QuantizerOptions& options)
    : options_(options),
      grid_(integer_grid(options.bits, options.is_signed)),
      form_(options.method == QuantMethod::lsq && options.step == QuantStep::log ? StepForm::log
                                                                                 : StepForm::plain),
      waits_(options.waits) {
  CONVSCOPE_CHECK(options.calibration_batches >= 1 && options.channels >= 0, "quantizer",
                  "expected at least one batch for calibration and channels >= 0, got ",
                  options.calibration_batches, " and ", options.channels);
  const Shape shape{std::max<std::int64_t>(1, options.channels)};
  const Tensor start =
      Tensor::full(shape, form_ == StepForm::log ? 0.0 : 1.0, DType::f32, options.device);
  if (options.method == QuantMethod::lsq) {
    step_ = add_parameter(form_ == StepForm::log ? "log_step" : "step", start);
    add_buffer("last_step", last_step_, start.clone());
  } else {
    step_ = Variable(start);
    add_buffer("step", step_);
  }
  add_buffer("first_step", first_step_, Tensor::full(shape, 1.0, DType::f32, options.device));
  add_buffer("batches_seen", batches_seen_, Tensor::zeros({1}), BufferPlace::host);
}

bool Quantizer::is_calibrated() const { return seen() > 0; }

// Sets the step size to the mean over the batches so far. With minmax, sets it to their maximum.
void Quantizer::calibrate(const Tensor& x) {
  const StepRule rule = options_.method == QuantMethod::minmax       ? StepRule::max_abs
                        : options_.method == QuantMethod::percentile ? StepRule::percentile
                                                                     : options_.init;
  const Tensor now =
      calibrated_step(x, grid_, rule, options_.channels > 0, options_.percentile, kept_ > 0)
          .to(Device{});
  CONVSCOPE_CHECK(now.shape() == first_step_.shape(), "quantizer", "expected a weight with ",
                  first_step_.numel(), " channels, got ", x.shape());
  const Tensor first = first_step_.to(Device{}).clone();
  const Tensor step = Tensor::empty(first.shape());
  const double count = seen() + 1;
  for (std::int64_t i = 0; i < first.numel(); ++i) {
    float& s = first.data<float>()[i];
    const float fresh = now.data<float>()[i];
    if (count == 1) {
      s = fresh;
    } else if (options_.method == QuantMethod::minmax) {
      s = std::max(s, fresh);
    } else {
      s += (fresh - s) / static_cast<float>(count);
    }
    step.data<float>()[i] = form_ == StepForm::log ? std::log(s) : s;
  }
  first_step_.copy_from(first);
  step_.value().copy_from(step);
  if (last_step_.defined()) last_step_.copy_from(step);
  batches_seen_.fill(count);
}

bool Quantizer::calibrates() const {
  return is_training() && seen() < static_cast<double>(options_.calibration_batches);
}

Variable Quantizer::rounded(const Variable& v) const {
  const Shape& x = v.shape();
  const std::int64_t shared = kept_ > 0            ? kept_
                              : options_.is_weight ? x.numel() / step_.value().numel()
                              : x[0] > 0           ? x.numel() / x[0]
                                                   : 0;
  return apply_lsq(v, step_,
                   {.grid = grid_,
                    .form = form_,
                    .g = lsq_grad_scale(shared, grid_.qp),
                    .log_rate = form_ == StepForm::log,
                    .integers = integers_},
                   {.last = last_step_, .first = first_step_});
}

Variable Quantizer::forward(const Variable& x) {
  if (x.graph() != nullptr) return recorded(x);
  if (!is_active()) return x;
  if (calibrates() && x.value().numel() > 0) calibrate(x.value());
  CONVSCOPE_CHECK(is_calibrated(), "quantizer",
                  "expected a calibrated step because the network is evaluated, got one that has "
                  "seen no training batch; train first, or load a checkpoint that holds the step");
  const Variable y = rounded(x);
  if (observing_) count_clipped(x.value());
  return y;
}

// A quantiser that waits adds no operation. A training step in which it calibrates or counts
// clipped values is not compiled.
Variable Quantizer::recorded(const Variable& x) {
  Graph& graph = *x.graph();
  const bool active = is_active(), counts = observing_ && graph.training();
  graph.valid_while([this, active, counts, calibrating = calibrates(), kept = kept_,
                     training = graph.training(), integers = integers_] {
    return is_active() == active && integers_ == integers && (observing_ && training) == counts &&
           calibrates() == calibrating && kept_ == kept;
  });
  if (!active) return x;
  if (graph.training() && calibrates()) graph.not_yet("it calibrates in this step");
  if (!graph.training() && !is_calibrated()) graph.not_yet("it has seen no training batch");
  if (counts) graph.not_yet("it counts what it clips in this step");
  return rounded(x);
}

void Quantizer::count_clipped(const Tensor& x) {
  const Tensor v = x.to(Device{});
  observed_ = {.steps = steps()};
  const std::int64_t rows = observed_.steps.numel(), inner = v.numel() / rows;
  const auto low = static_cast<float>(-grid_.qn), high = static_cast<float>(grid_.qp);
  std::int64_t clipped = 0, counted = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const float s = observed_.steps.data<float>()[row];
    const float* const from = v.data<float>() + row * inner;
    for (std::int64_t i = 0; i < inner; ++i) {
      const float u = from[i] / s;
      clipped += u < low || u > high ? 1 : 0;
      counted += kept_ > 0 && from[i] == 0 ? 0 : 1;
    }
  }
  observed_.clipped_percent = 100.0 * static_cast<double>(clipped) /
                              static_cast<double>(std::max<std::int64_t>(counted, 1));
}

Tensor Quantizer::steps() const {
  const Tensor out = step_.value().to(Device{}).clone();
  if (form_ == StepForm::plain) return out;
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    out.data<float>()[i] = static_cast<float>(std::exp(static_cast<double>(out.data<float>()[i])));
  }
  return out;
}

void Quantizer::set_steps(const Tensor& steps) {
  CONVSCOPE_CHECK(steps.dtype() == DType::f32 && steps.shape() == first_step_.shape(), "quantizer",
                  "expected steps of type f32 and shape ", first_step_.shape(), ", got ",
                  steps.str());
  const Tensor value = steps.to(Device{}).clone();
  for (std::int64_t i = 0; i < value.numel(); ++i) {
    float& s = value.data<float>()[i];
    CONVSCOPE_CHECK(std::isfinite(s) && s > 0, "quantizer", "expected steps above 0, got ", s);
    // s may be the exponential of a float t. For |log s| >= 1, the float nearest to log s is t
    // again. Nearer to 0 several floats have the same exponential, so the float nearest to log s
    // may differ from t, but it also has the exponential s.
    if (form_ == StepForm::log) s = static_cast<float>(std::log(static_cast<double>(s)));
  }
  step_.value().copy_from(value);
  if (last_step_.defined()) last_step_.copy_from(value);
  first_step_.copy_from(this->steps());
  batches_seen_.fill(static_cast<double>(options_.calibration_batches));
}

std::string Quantizer::str() const {
  const char* const how = options_.method == QuantMethod::minmax       ? "min-max step"
                          : options_.method == QuantMethod::percentile ? "percentile step"
                          : options_.step == QuantStep::log            ? "learned log step"
                                                                       : "learned floored step";
  return cat(options_.is_signed ? "signed " : "unsigned ", options_.bits, " bits, ", how,
             options_.channels > 0 ? " by channel" : "");
}

}  // namespace convscope
