// SPDX-License-Identifier: Apache-2.0
// dropout.h: sets a random part of the elements to zero in training, so that the network does not
// depend on single elements.
//
// Shapes      x [any] -> y, the same shape
// Formula     y = x / (1 - p) where the element is kept (probability 1 - p), else 0;
//             in eval mode y = x
// Parameters  p  probability of dropping, in [0,1), default 0.5
// Usage       net.set_step(step);  y = net.forward(x);
// Random      The mask is a pure function of (seed, layer's stream, step, element). It is never
//             stored: the backward pass draws it again. So the trainer calls Module::set_step()
//             before each training step, and a resumed run has the same masks. Two forward passes
//             in one step have the same mask.
// Paper       N. Srivastava et al.: Dropout, JMLR 15 (2014), 1929-1958
#pragma once

#include <string>

#include "framework/kernel_slot.h"
#include "layers/module.h"

namespace convscope {

// The inputs from which the mask of one forward pass is drawn.
struct DropoutMask {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;
  std::int64_t step = 0;
  // A number in device memory that the kernel adds to `step` when it runs; null: 0. A CUDA graph,
  // whose arguments are fixed, gets the number of its first step from here.
  const std::int64_t* base_step = nullptr;
  double p = 0.5;
};

CONVSCOPE_API Variable dropout(const Variable& x, const DropoutMask& mask);

class CONVSCOPE_API Dropout final : public Module {
 public:
  Dropout(double p, std::uint64_t seed, std::uint64_t stream);
  std::string kind() const override { return "dropout"; }
  Variable forward(const Variable& x) override;
  Shape output_shape(const Shape& input) const override { return input; }

 private:
  DropoutMask mask_;
};

// Computes y = x mask / (1 - p); also the backward pass, with dy and dx.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, const DropoutMask& mask, const Tensor& y)>
    dropout_kernel;

}  // namespace convscope
