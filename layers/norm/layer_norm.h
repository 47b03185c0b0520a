// SPDX-License-Identifier: Apache-2.0
// layer_norm.h: normalises the channels of each pixel to mean 0 and deviation 1, then applies a
// learned scale and shift.
//
// Shapes      x [N,C,H,W] or [N,F] -> y, the same shape; weight and bias [C] or [F]; f32 or f64,
//             on a GPU also fp16 and bf16 images in NHWC
// Formula     y = (x - mean) / sqrt(variance + eps) weight[c] + bias[c], with the mean and the
//             (biased) variance over the C channels of a pixel, or over the F features of a row
// Backward    with u = (x - mean) r, r = 1 / sqrt(variance + eps), g = dy weight:
//             dx = r (g - mean(g) - u mean(g u)), dweight = sum of dy u, dbias = sum of dy;
//             saved: x, mean and r of each pixel
// Parameters  eps  added to the variance, default 1e-5
// Usage       {type: layer_norm, eps: 1e-6}
// Paper       J. Ba, J. Kiros, G. Hinton: Layer Normalization, 2016, arXiv 1607.06450;
//             on images as in torchvision's LayerNorm2d
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

struct LayerContext;

CONVSCOPE_API Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                                  double eps = 1e-5);

class CONVSCOPE_API LayerNorm final : public Module {
 public:
  LayerNorm(std::int64_t channels, double eps, LayerContext& context);
  std::string kind() const override { return "layer_norm"; }
  double eps() const { return eps_; }
  Variable forward(const Variable& x) override { return layer_norm(x, weight_, bias_, eps_); }
  Shape output_shape(const Shape& input) const override;

 private:
  std::int64_t channels_;
  double eps_;
  Variable weight_, bias_;
};

// The arguments of the kernels. x and y, or dy, x and dx, are stored as [N,C,H,W], [N,F],
// [N,C/16,H,W,16] (CPU, f32) or [N,1,H,W,Cp] (GPU). Lanes after the last channel become 0.
struct LayerNormArgs {
  Tensor x, weight, bias;
  double eps;
  Tensor y;
  Tensor mean, inverse;  // [pixels], f64 if x is f64, else f32; undefined: not needed
};
// The sums over pixels are divided into slices that depend only on the shape, so that the bits of
// dweight and dbias do not depend on the number of threads.
struct LayerNormGradientArgs {
  Tensor dy, x, weight, mean, inverse;
  Tensor parts;               // scratch memory, f64 [slices,3,C]
  Tensor dx, dweight, dbias;  // assigned; undefined: not needed
};
inline constexpr std::int64_t kLayerNormPixels = 64;  // processed together
inline constexpr std::int64_t kLayerNormSlices = 64;  // at most
// Returns the shape of `parts` for x [N,C,..].
CONVSCOPE_API Shape layer_norm_parts(const Shape& x);

extern CONVSCOPE_API KernelSlot<void(const LayerNormArgs&)> layer_norm_kernel;
extern CONVSCOPE_API KernelSlot<void(const LayerNormGradientArgs&)> layer_norm_gradient_kernel;

}  // namespace convscope
