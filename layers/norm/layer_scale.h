// SPDX-License-Identifier: Apache-2.0
// layer_scale.h: multiplies each channel by a learned factor that is small at the start, so that a
// new residual block is close to the identity.
//
// Shapes      x [N,C,H,W] or [N,C] -> y, the same shape; weight [C]; f32 or f64, on a GPU also
//             fp16 and bf16 images in NHWC
// Formula     y = x weight[c]
// Backward    dx = dy weight[c], dweight[c] = sum of dy x; saved: x
// Parameters  init  of all elements of weight, default 1e-6
// Usage       {type: layer_scale, init: 1e-6}, before the sum of a residual block
// Paper       H. Touvron, M. Cord, A. Sablayrolles, G. Synnaeve, H. Jegou: Going Deeper with Image
//             Transformers, ICCV 2021, arXiv 2103.17239; used by ConvNeXt
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

struct LayerContext;

CONVSCOPE_API Variable layer_scale(const Variable& x, const Variable& weight);

class CONVSCOPE_API LayerScale final : public Module {
 public:
  LayerScale(std::int64_t channels, double init, LayerContext& context);
  std::string kind() const override { return "layer_scale"; }
  Variable forward(const Variable& x) override { return layer_scale(x, weight_); }
  Shape output_shape(const Shape& input) const override;

 private:
  Variable weight_;
};

// Kernels, for the layouts of layer_norm.h. They assign y and dweight. `parts` is scratch memory,
// f64 [slices,3,C].
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& weight, const Tensor& y)>
    layer_scale_kernel;
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& dy, const Tensor& x, const Tensor& parts, const Tensor& dweight)>
        layer_scale_weight_kernel;

}  // namespace convscope
