// SPDX-License-Identifier: Apache-2.0
// lsq.h: learned step size quantisation: rounds a value to integer multiples of a step size, with
// gradients for the value and for the step size.
//
// Shapes      v any shape -> v_hat, the same; step [1], or [K] for v [K,...]: one step for each
//             output channel. f32, or f64 by plain loops for checks.
// Formula     v_hat = s round(clip(v / s, -Qn, Qp)), rounded half to even (integer_grid.h)
// Backward    with u = v / s; "inside" means -Qn < u < Qp, the paper's strict bounds:
//             dv = dy inside, 0 outside                                          (assigned)
//             ds = g sum over v of dy { round(u) - u inside; -Qn or Qp outside } (accumulated)
// Step        plain: the parameter is s. log: the parameter is t = log s, so s > 0 after any
//             update, and dt = s ds.
// Gradient    g = grad_scale(N, Qp) = 1 / sqrt(N Qp). N counts the values that share a step: for
// scale       weights all of them (by channel: those of one channel), for activations the features
//             of one sample. The batch is not counted: the loss is a mean over the batch, so ds
//             does not grow with it, and counting it would slow down learning in large batches.
//             (Two widely used PyTorch versions count it: their g is sqrt(batch) smaller.)
// Numerics    v_hat and dv have the same bits on every instruction set and number of threads; so
//             has ds, a sum of exact double products in a fixed order.
// Saved       v and step.
// Usage       Variable w_hat = lsq_quantize(w, step, {.grid = integer_grid(4, true), .g = g});
// Paper       S. Esser, J. McKinstry, D. Bablani, R. Appuswamy, D. Modha: Learned Step Size
//             Quantization, ICLR 2020, arXiv 1902.08153
#pragma once

#include "framework/graph/simple_operation.h"
#include "framework/kernel_slot.h"
#include "quant/integer_grid.h"

namespace convscope {

enum class StepForm { plain, log };

// When inference computes with integer codes (quant/integer/) instead of rounding in f32: never,
// where codes are estimated to be faster, or always where an integer kernel exists.
enum class IntegerUse : unsigned char { never, where_faster, always };

struct LsqRule {
  IntegerGrid grid;
  StepForm form = StepForm::plain;
  double g = 1.0;  // scale of the step's gradient
  // For the log variant: divides the gradient by the current mean of s^2. Without this division dt
  // = s ds moves s by s^2 ds, which is hundreds of times less than the paper's update for s near
  // 0.05. With the division both variants change s equally, to first order.
  bool log_rate = false;
  IntegerUse integers = IntegerUse::never;
};

// The values that bound a step (quantizer.h); both undefined: no bounds.
struct StepBounds {
  Tensor last, first;
};

// lsq_parts() returns the rule and the bounds of an operation that apply_lsq() has recorded in a
// graph, and null for other operations.
struct LsqParts {
  LsqRule rule;
  StepBounds bounds;
};
CONVSCOPE_API const LsqParts* lsq_parts(const Operation* operation);

// Rounds v. The operation puts the step size within its bounds before it uses it. A device may
// delay storing the bounded step size until the backward pass, because only the optimiser reads it
// afterwards.
CONVSCOPE_API Variable apply_lsq(const Variable& v, const Variable& step, const LsqRule& rule,
                                 const StepBounds& bounds);

// Throws unless all step sizes are finite and above 0. For the plain variant (whose parameter is
// s), on the CPU.
CONVSCOPE_API void check_steps(const Tensor& steps);

CONVSCOPE_API double lsq_grad_scale(std::int64_t count, int qp);

CONVSCOPE_API Variable lsq_quantize(const Variable& v, const Variable& step, const LsqRule& rule);

// Kernels for several tensors at once: a device launches one kernel for all of them. If a gradient
// tensor is undefined, the kernel does not compute it.
struct LsqForward {
  Tensor v, step;
  LsqRule rule;
  StepBounds bounds;  // the kernel uses the bounded step
  Tensor y;           // assigned
};
struct LsqBackward {
  Tensor dy, v, step;
  LsqRule rule;
  StepBounds bounds;  // the bounds of the forward; the backward stores the bounded step
  Tensor dv, dstep;   // assigned; dstep is like step
};
extern CONVSCOPE_API KernelSlot<void(const LsqForward* all, int count)> lsq_kernel;
extern CONVSCOPE_API KernelSlot<void(const LsqBackward* all, int count)> lsq_gradient_kernel;
// Puts the step size within its bounds and copies it to `last`, on the CPU.
CONVSCOPE_API void put_into_bounds(const Tensor& step, const StepBounds& bounds, StepForm form);

}  // namespace convscope
