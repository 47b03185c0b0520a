// SPDX-License-Identifier: Apache-2.0
// lsq.h: rounds to a grid of integers times a step, with gradients for the input and for the step:
// learned step size quantisation.
//
// Shapes      v any shape -> v_hat, the same; step [1], or [K] for v [K,...]: one step for each
//             output channel. f32, or f64 by plain loops for checks.
// Formula     v_hat = s round(clip(v / s, -Qn, Qp)), rounded half to even (integer_grid.h)
// Backward    with u = v / s; "inside" means -Qn < u < Qp, the paper's strict bounds:
//             dv = dy inside, 0 outside                                          (assigned)
//             ds = g sum over v of dy { round(u) - u inside; -Qn or Qp outside } (accumulated)
// Step        plain: the parameter is s. log: the parameter is t = log s, so s > 0 whatever the
//             optimiser does, and dt = s ds.
// Gradient    g = grad_scale(N, Qp) = 1 / sqrt(N Qp). N counts the values that share a step: for
// scale       weights all of them (by channel: those of one channel); for activations the features
//             of one sample, without the batch: the loss is a mean over the batch, so ds does not
//             grow with it, and the step would learn more slowly in a larger batch if N did. (Two
//             widely used PyTorch versions count the batch too: g is sqrt(batch) smaller there.)
// Numerics    v_hat and dv have the same bits on every instruction set and number of threads; ds is
//             a sum of exact double products in a fixed order, so it has too.
// Saved       v and step.
// Usage       Variable w_hat = lsq_quantize(w, step, {.grid = integer_grid(4, true), .g = g});
// Paper       S. Esser, J. McKinstry, D. Bablani, R. Appuswamy, D. Modha: Learned Step Size
//             Quantization, ICLR 2020, arXiv 1902.08153
#pragma once

#include "framework/autograd/operation.h"
#include "framework/kernel_slot.h"
#include "quant/integer_grid.h"

namespace convscope {

enum class StepForm { plain, log };

// Whether a plan for inference computes with the codes instead (quant/integer/): where that is
// estimated to be faster, or wherever there is a kernel. All else rounds in f32.
enum class IntegerUse : unsigned char { never, where_faster, always };

struct LsqRule {
  IntegerGrid grid;
  StepForm form = StepForm::plain;
  double g = 1.0;  // scale of the step's gradient
  // Log form: divides the gradient by the mean s^2 of now. dt = s ds would move s by s^2 ds: with s
  // near 0.05, hundreds of times less than the paper's update of s itself. With it the first-order
  // change of s is the same in both forms.
  bool log_rate = false;
  IntegerUse integers = IntegerUse::never;
};

// What keeps a step in its bounds (quantizer.h); both undefined: nothing does.
struct StepBounds {
  Tensor last, first;
};

// Inputs v and step. The step counts as put into its bounds from the forward on; a device may write
// it there as late as in the backward, so before the optimiser sees it.
CONVSCOPE_API Ref<const Operation> lsq_operation(const LsqRule& rule, const StepBounds& bounds);

// Those of an operation that lsq_operation() made; null of others.
struct LsqParts {
  LsqRule rule;
  StepBounds bounds;
};
CONVSCOPE_API const LsqParts* lsq_parts(const Operation* operation);

// Throws unless all steps (of the plain form, on the CPU) are finite and above 0.
CONVSCOPE_API void check_steps(const Tensor& steps);

CONVSCOPE_API double lsq_grad_scale(std::int64_t count, int qp);

CONVSCOPE_API Variable lsq_quantize(const Variable& v, const Variable& step, const LsqRule& rule);

// Kernels, for several tensors at once: a device launches one kernel for all of them. A gradient
// that is undefined is not wanted.
struct LsqForward {
  Tensor v, step;
  LsqRule rule;
  StepBounds bounds;  // the step counts as put into them
  Tensor y;           // assigned
};
struct LsqBackward {
  Tensor dy, v, step;
  LsqRule rule;
  StepBounds bounds;  // those of the forward; the step is in them afterwards
  Tensor dv, dstep;   // assigned; dstep is like step
};
extern CONVSCOPE_API KernelSlot<void(const LsqForward* all, int count)> lsq_kernel;
extern CONVSCOPE_API KernelSlot<void(const LsqBackward* all, int count)> lsq_gradient_kernel;
// Puts the step into its bounds and copies it to `last`; on the CPU.
CONVSCOPE_API void put_into_bounds(const Tensor& step, const StepBounds& bounds, StepForm form);

}  // namespace convscope
