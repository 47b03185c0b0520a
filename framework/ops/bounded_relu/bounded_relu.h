// SPDX-License-Identifier: Apache-2.0
// bounded_relu.h: an element-wise ReLU with an upper bound. With the bound 6, it is ReLU6, the
// activation of MobileNet v2.
//
// Shapes    x [any] -> y, the same shape; f32 or f64
// Formula   y = min(max(x, 0), most);  NaN stays NaN
// Backward  dx = dy where 0 < y < most (or y is NaN), else 0; saved: y
// GPU       composed of the kernels of elementwise.h. The gradient of relu is a selection:
//           where(a, b) = b where a > 0 or a is NaN, else 0. With it
//             y = where(most - x, relu(x)) + (most - where(most - x, most)),
//           and one of the two terms is 0. No rounded difference reaches y, so y has the same bits
//           as the CPU's y. most - relu(most - relu(x)) would lose the last bits of a small x.
// Paper     A. Krizhevsky: Convolutional Deep Belief Networks on CIFAR-10, 2010
#pragma once

#include "framework/graph/emitter.h"
#include "framework/kernel_slot.h"

namespace convscope {

inline constexpr float kRelu6Bound = 6;

CONVSCOPE_API Variable bounded_relu(const Variable& x, double most);
inline Variable relu6(const Variable& x) { return bounded_relu(x, kRelu6Bound); }

// Emits the gradient of a bounded ReLU whose result is `value`: dx, which may be the gradient of
// `value` itself.
CONVSCOPE_API void emit_bounded_relu_gradient(Emitter& emitter, ValueId value, double most,
                                              const Tensor& dx);

// Returns the shape of the scratch memory of the kernels, which has the type of x. On a GPU, the
// shape is [2, elements] forward and [1, elements] backward. On the CPU, it is [0], and the tensor
// may be undefined.
CONVSCOPE_API Shape bounded_relu_scratch(Device device, std::int64_t elements, bool forward);

// Kernels. They overwrite y and dx. y may be the same tensor as x, and dx the same tensor as dy.
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& x, double most, const Tensor& scratch, const Tensor& y)>
        bounded_relu_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& y, const Tensor& dy, double most,
                                     const Tensor& scratch, const Tensor& dx)>
    bounded_relu_gradient_kernel;

// Computes y with kernels of elementwise.h only, on any device.
CONVSCOPE_API void bounded_relu_composed(const Tensor& x, double most, const Tensor& scratch,
                                         const Tensor& y);
CONVSCOPE_API void bounded_relu_gradient_composed(const Tensor& y, const Tensor& dy, double most,
                                                  const Tensor& scratch, const Tensor& dx);

}  // namespace convscope
