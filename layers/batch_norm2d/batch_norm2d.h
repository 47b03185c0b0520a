// SPDX-License-Identifier: Apache-2.0
// batch_norm2d.h: normalises every channel to mean 0 and deviation 1 over the batch, then applies a
// learned scale and shift.
//
// Shapes      x [N,C,H,W] -> y, the same shape;  weight, bias, running_mean, running_var [C]
// Formula     y = (x - mean[c]) / sqrt(var[c] + eps) weight[c] + bias[c]
//             training: mean and var of this batch over N, H, W (var divides by the count);
//             eval: the running mean and variance, which each training step updates:
//             running = (1 - momentum) running + momentum batch (var divided by count - 1)
// Parameters  momentum  share of the newest batch, in [0,1], default 0.1
//             eps       added to the variance, default 1e-5
// Numerics    Statistics take two passes. From each f32 element a number near the mean is
//             subtracted, and the differences are added in float; every 512 elements the sum is
//             added to a double. So a mean far from 0 is accurate, and bits are the same with any
//             number of threads.
// Usage       BatchNorm2d bn1(16, {}, context);  y = bn1.forward(x);
// Paper       S. Ioffe, C. Szegedy: Batch Normalization, ICML 2015, arXiv 1502.03167
#pragma once

#include <string>

#include "framework/kernel_slot.h"
#include "layers/layer_types.h"
#include "layers/training_rule.h"

namespace convscope {

struct BatchNormOptions {
  double momentum = 0.1;
  double eps = 1e-5;

  // Returns the options of the layer in a config.
  CONVSCOPE_API static std::vector<OptionField> fields();
  CONVSCOPE_API static BatchNormOptions of(const Options& options);
};

// The normalisation of channel c: (x - mean) inverse_deviation; f64 [C].
struct BatchNormStatistics {
  Tensor mean;
  Tensor variance;           // divided by the count
  Tensor inverse_deviation;  // 1 / sqrt(variance + eps)
};

// Returns why a training step refuses x, or "" if it accepts x.
std::string refusal_of_one_value(const Shape& x);

// Normalises in training mode. `statistics`, if not null, receives the statistics of the batch.
CONVSCOPE_API Variable batch_norm2d(const Variable& x, const Variable& weight, const Variable& bias,
                                    double eps, BatchNormStatistics* statistics = nullptr);
// Normalises in eval mode with the given mean and variance [C].
CONVSCOPE_API Variable batch_norm2d(const Variable& x, const Variable& weight, const Variable& bias,
                                    const Tensor& mean, const Tensor& variance, double eps);

// Channels with a learned scale and shift, and their running statistics.
class CONVSCOPE_API BatchNormLayer : public Module {
 public:
  const BatchNormOptions& options() const { return options_; }

 protected:
  // `name` begins the sentences of errors.
  BatchNormLayer(const char* name, std::int64_t channels, const BatchNormOptions& options,
                 LayerContext& context);

  const std::int64_t channels_;
  const BatchNormOptions options_;
  Variable weight_, bias_;
  Tensor running_mean_, running_var_;
};

class CONVSCOPE_API BatchNorm2d final : public BatchNormLayer, public TrainingRule {
 public:
  BatchNorm2d(std::int64_t channels, const BatchNormOptions& options, LayerContext& context);
  std::string kind() const override { return "batch_norm2d"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
  std::string why_not_trained(const Shape& input) const override;
};

// Kernels for images x [N,C,H,W], and for rows x [n,C] with at least one row (the slots are those
// of sparse_rows/row_norm.h). x and y are f32 or f64; mean, variance, sums, factors: f64 [C].
using BatchNormStatisticsSlot =
    KernelSlot<void(const Tensor& x, const Tensor& mean, const Tensor& variance)>;
// y = (x - mean[c]) factor[c] + shift[c]. On the CPU also for NCHW16c images [N,C/16,H,W,16].
using BatchNormApplySlot =
    KernelSlot<void(const Tensor& x, const Tensor& mean, const Tensor& factor, const Tensor& shift,
                    const Tensor& y)>;
// sum_dy[c] = sum of dy, sum_dy_x[c] = sum of dy (x - mean[c]).
using BatchNormSumsSlot = KernelSlot<void(const Tensor& dy, const Tensor& x, const Tensor& mean,
                                          const Tensor& sum_dy, const Tensor& sum_dy_x)>;
// dx = a[c] dy + b[c] (x - mean[c]) + d[c].
using BatchNormGradientSlot =
    KernelSlot<void(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& a,
                    const Tensor& b, const Tensor& d, const Tensor& dx)>;
extern CONVSCOPE_API BatchNormStatisticsSlot batch_norm_statistics_kernel;
extern CONVSCOPE_API BatchNormApplySlot batch_norm_apply_kernel;
extern CONVSCOPE_API BatchNormSumsSlot batch_norm_sums_kernel;
extern CONVSCOPE_API BatchNormGradientSlot batch_norm_gradient_kernel;

}  // namespace convscope
