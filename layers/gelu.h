// SPDX-License-Identifier: Apache-2.0
// gelu.h: an elementwise activation that is smooth where a ReLU has its corner.
//
// Shapes    x [any] -> y, the same shape; f32 or f64
// Formula   y = x Phi(x) with Phi(x) = (1 + erf(x / sqrt 2)) / 2, the normal distribution: exact,
//           without the tanh approximation
// Backward  dx = dy (Phi(x) + x phi(x)), phi(x) = exp(-x^2 / 2) / sqrt(2 pi); saved: x
// Usage     Gelu g1;  y = g1.forward(x);    in a config: {type: gelu}
// Paper     D. Hendrycks, K. Gimpel: Gaussian Error Linear Units, 2016, arXiv 1606.08415
#pragma once

#include "framework/kernel_slot.h"
#include "framework/simd/cpu_isa.h"
#include "layers/module.h"

namespace convscope {

CONVSCOPE_API Variable gelu(const Variable& x);

class CONVSCOPE_API Gelu final : public Module {
 public:
  std::string kind() const override { return "gelu"; }
  Variable forward(const Variable& x) override { return gelu(x); }
  Shape output_shape(const Shape& input) const override { return input; }
};

// Kernels; they assign y and dx.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& y)> gelu_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const Tensor& dy, const Tensor& dx)>
    gelu_gradient_kernel;

// The f32 loops on the CPU, one table per instruction set.
struct GeluLoops {
  void (*forward)(const float* x, float* y, std::int64_t n);
  void (*gradient)(const float* x, const float* dy, float* dx, std::int64_t n);
};
extern IsaTable<GeluLoops> gelu_loops;

}  // namespace convscope
