// SPDX-License-Identifier: Apache-2.0
// dropout.h: sets random elements, or all elements of random images, to zero in training, so that
// the network does not depend on single elements or layers.
//
// Shapes      x [any] -> y, the same shape
// Formula     y = x / (1 - p) where the element is kept (probability 1 - p), else 0;
//             in eval mode y = x
// Parameters  dropout           p  probability of dropping, in [0,1), default 0.5
//             stochastic_depth  probability  of dropping, in [0,1), default 0.2
//                               mode  row (default): each image is dropped or kept as a whole;
//                                     batch: all images together
// Usage       net.set_step(step);  y = net.forward(x);
//             {type: stochastic_depth, probability: 0.1}, before the sum of a residual block
// Random      The mask is a pure function of (seed, layer's stream, step, element). It is never
//             stored: the backward pass draws it again. So the trainer calls Module::set_step()
//             before each training step, and a resumed run has the same masks. Two forward passes
//             in one step have the same mask.
// Paper       N. Srivastava et al.: Dropout, JMLR 15 (2014), 1929-1958
//             G. Huang, Y. Sun, Z. Liu, D. Sedra, K. Weinberger: Deep Networks with
//             Stochastic Depth, ECCV 2016, arXiv 1603.09382 (torchvision's StochasticDepth)
#pragma once

#include <cmath>
#include <string>

#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

// The part of x that is dropped or kept as a whole: an element, an image x[n], or the batch.
enum class DropUnit { element, row, batch };

// The inputs from which the mask of one forward pass is drawn.
struct DropoutMask {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::int64_t step = 0;
  // A number in device memory that the kernel adds to `step` when it runs; null: 0. A CUDA graph,
  // whose arguments are fixed, gets the number of its first step from here.
  const std::int64_t* base_step = nullptr;
  double p = 0.5;
  DropUnit unit = DropUnit::element;

  // Returns 2^32 p: an element whose 32-bit random word is below this number is dropped.
  std::uint32_t threshold() const { return static_cast<std::uint32_t>(std::ldexp(p, 32)); }
};

CONVSCOPE_API Variable dropout(const Variable& x, const DropoutMask& mask);

class CONVSCOPE_API Dropout final : public Module {
 public:
  // Creates dropout, or stochastic depth if `unit` is not `element`.
  Dropout(double p, std::uint64_t seed, std::uint64_t stream, DropUnit unit = DropUnit::element);
  std::string kind() const override {
    return mask_.unit == DropUnit::element ? "dropout" : "stochastic_depth";
  }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  DropoutMask mask_;
};

// Computes y = x mask / (1 - p); also the backward pass, with dy and dx. x is f32 or f64; for the
// units row and batch it is stored in any layout, on a GPU also as fp16 or bf16.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const DropoutMask& mask, const Tensor& y)>
    dropout_kernel;

}  // namespace convscope
