// SPDX-License-Identifier: Apache-2.0
// bounded_relu.h: a ReLU with an upper bound, on every element alone. With the bound 6 it is ReLU6,
// the curve of MobileNet v2.
//
// Shapes    x [any] -> y, the same shape; f32 or f64
// Formula   y = min(max(x, 0), most);  NaN stays NaN
// Backward  dx = dy where 0 < y < most (or y is NaN), else 0; saved: y
// GPU       made of kernels of elementwise.h. What their gradient of relu computes is a choice:
//           where(a, b) = b where a > 0 or a is NaN, else 0. With it
//             y = where(most - x, relu(x)) + (most - where(most - x, most)),
//           and one of the two terms is 0. No difference that was rounded reaches y: the bits are
//           those of the CPU. most - relu(most - relu(x)) would lose the last bits of a small x.
// Paper     A. Krizhevsky: Convolutional Deep Belief Networks on CIFAR-10, 2010
#pragma once

#include "framework/autograd/variable.h"
#include "framework/kernel_slot.h"

namespace convscope {

inline constexpr float kRelu6Bound = 6;

CONVSCOPE_API Variable bounded_relu(const Variable& x, double most);
inline Variable relu6(const Variable& x) { return bounded_relu(x, kRelu6Bound); }

// The kernels' scratch memory, of x's type: forward [2, elements], backward [1, elements] on a GPU;
// on the CPU [0], and the tensor may be undefined.
CONVSCOPE_API Shape bounded_relu_scratch(Device device, std::int64_t elements, bool forward);

// Kernels; y and dx are assigned and may be x and dy.
extern CONVSCOPE_API
    KernelSlot<void(const Tensor& x, double most, const Tensor& scratch, const Tensor& y)>
        bounded_relu_kernel;
extern CONVSCOPE_API KernelSlot<void(const Tensor& y, const Tensor& dy, double most,
                                     const Tensor& scratch, const Tensor& dx)>
    bounded_relu_gradient_kernel;

// The same, made of kernels of elementwise.h, on any device.
CONVSCOPE_API void bounded_relu_composed(const Tensor& x, double most, const Tensor& scratch,
                                         const Tensor& y);
CONVSCOPE_API void bounded_relu_gradient_composed(const Tensor& y, const Tensor& dy, double most,
                                                  const Tensor& scratch, const Tensor& dx);

}  // namespace convscope
