// SPDX-License-Identifier: Apache-2.0
// row_norm.h: batch norm of rows [n,C]: every channel gets mean 0 and deviation 1 over all rows of
// the batch, then a learned scale and shift.
//
// Shapes      x [n,C] -> y, the same;  weight, bias, running_mean, running_var [C]
// Formula     as of batch_norm2d.h, over the existing rows: absent places do not count
// Parameters  momentum  share of the newest batch, in [0,1], default 0.1
//             eps       added to the variance, default 1e-5
// Few rows    without rows, y is empty, gradients are 0, and the running statistics do not change.
//             With one row in training, the deviation is 0, so y is the bias, and the running
//             statistics do not change
// Numerics    two passes in double. Each group of 256 or more rows is summed separately, and the
//             sums of groups are added in order, so bits are the same with any number of threads
// Usage       {type: sparse_batch_norm};  y = norm.forward(x);
// Paper       S. Ioffe, C. Szegedy: Batch Normalization, ICML 2015, arXiv 1502.03167
#pragma once

#include <string>

#include "layers/batch_norm2d/batch_norm2d.h"
#include "layers/sparse_rows/row_layers.h"

namespace convscope {

// Normalises in training mode. `statistics`, if not null, receives the statistics of the batch,
// unless x is empty.
CONVSCOPE_API Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias,
                                double eps, BatchNormStatistics* statistics = nullptr);
// Normalises in eval mode with the given mean and variance [C].
CONVSCOPE_API Variable row_norm(const Variable& x, const Variable& weight, const Variable& bias,
                                const Tensor& mean, const Tensor& variance, double eps);

// Parameters and buffers have the names of batch_norm2d.
class CONVSCOPE_API SparseBatchNorm final : public BatchNormLayer {
 public:
  SparseBatchNorm(std::int64_t channels, const BatchNormOptions& options, LayerContext& context);
  std::string kind() const override { return "sparse_batch_norm"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override;
};

extern CONVSCOPE_API BatchNormStatisticsSlot row_moments_kernel;
extern CONVSCOPE_API BatchNormApplySlot row_apply_kernel;
extern CONVSCOPE_API BatchNormSumsSlot row_gradient_sums_kernel;
extern CONVSCOPE_API BatchNormGradientSlot row_gradient_kernel;

}  // namespace convscope
