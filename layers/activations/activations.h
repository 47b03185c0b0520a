// SPDX-License-Identifier: Apache-2.0
// activations.h: the activations of layers/activations/rules/ as functions and kernels.
//
// Shapes    x [any] -> y, the same shape; f32 or f64
// Formula   that of the activation's file
// Usage     Variable y = activation("silu", x);    in a config: {type: silu}
#pragma once

#include <string_view>

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {

// Returns f(x) of the activation with this name. Throws if there is none.
CONVSCOPE_API Variable activation(std::string_view name, const Variable& x);

// Kernels, by the activation's index in the list; they assign y and dx.
extern CONVSCOPE_API KernelSlot<void(int index, const Tensor& x, const Tensor& y)>
    activation_kernel;
extern CONVSCOPE_API
    KernelSlot<void(int index, const Tensor& x, const Tensor& dy, const Tensor& dx)>
        activation_gradient_kernel;

// The f32 loops of all activations, by index, one table per instruction set.
struct ActivationKernels {
  using Forward = void (*)(const float* x, float* y, std::int64_t n);
  using Gradient = void (*)(const float* x, const float* dy, float* dx, std::int64_t n);
  const Forward* forward = nullptr;
  const Gradient* gradient = nullptr;
};
extern IsaTable<ActivationKernels> activation_kernels;

}  // namespace convscope
