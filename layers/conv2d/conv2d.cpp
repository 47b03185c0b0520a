// SPDX-License-Identifier: Apache-2.0
// conv2d.cpp: the convolution as a differentiable operation and as a layer.
#include "layers/conv2d/conv2d.h"

#include "framework/ops/accumulate.h"
#include "framework/tensor_kernels.h"
#include "layers/conv2d/bias_gradient.h"
#include "layers/conv2d/execute.h"

namespace convscope {
namespace {

constexpr const char* kOperation = "conv2d";

void check_operands(const Variable& x, const Variable& w, const Variable& b) {
  const Tensor& xv = x.value();
  const Tensor& wv = w.value();
  CONVSCOPE_CHECK(xv.dtype() == DType::f32 || xv.dtype() == DType::f64, kOperation,
                  "expected x of type f32 or f64, got ", xv.str());
  CONVSCOPE_CHECK(wv.dtype() == xv.dtype() && wv.device() == xv.device(), kOperation,
                  "expected x and w of one type on one device, got ", xv.str(), " and ", wv.str());
  CONVSCOPE_CHECK(!b.defined() || (b.value().shape() == Shape{wv.dim(0)} &&
                                   b.dtype() == xv.dtype() && b.device() == xv.device()),
                  kOperation, "expected b [", wv.dim(0), "] of the type of x because w is ",
                  wv.shape(), ", got ", b.value().str());
}

// Returns how often the weights are used. A call without gradients is inference: a compiled step
// would prepare the weights once for many calls, and the dynamic graph chooses the same algorithms.
WeightUse use_of(const Variable& x, const Variable& w, const Variable& b) {
  return needs_record(x, w, b) ? WeightUse::once : WeightUse::often;
}

// Assigns `from`, converted to the target's type, or adds it to the target.
void put(const Tensor& from, const GradientSink::Target& to) {
  if (to.accumulate) return accumulate(to.tensor, from.to(to.tensor.dtype()));
  convert_kernel.get(from.device())(from, to.tensor);
}

// The operands are rounded to problem.dtype; the closure keeps the rounded tensors.
Variable conv2d_half(const Conv2dProblem& problem, const Variable& x, const Variable& w,
                     const Variable& b, const Ref<Conv2dChoices>& choices) {
  const DType half = problem.dtype;
  const Device device = x.device();
  const Tensor x_half = x.value().to(half);
  const Tensor w_half = w.value().to(half);
  const Tensor y = Tensor::empty(problem.y_shape(), half, device);
  execute_forward(choices->get(problem, Direction::forward, device, use_of(x, w, b)), problem,
                  x_half, w_half, b.defined() ? b.value().to(half) : Tensor(), y);
  return record(kOperation, y.to(x.dtype()), {x, w, b},
                [problem, choices, x = w.requires_grad() ? x_half : Tensor(),
                 w = x.requires_grad() ? w_half : Tensor()](const Tensor& dy, GradientSink& out) {
                  const Device on = dy.device();
                  if (out.wants(2)) {  // db is a sum, in f32
                    const GradientSink::Target db = out.target(2);
                    conv2d_bias_gradient_kernel.get(on)(dy, db.tensor, db.accumulate);
                  }
                  if (!out.wants(0) && !out.wants(1)) return;
                  const Tensor dy_half = dy.to(problem.dtype);
                  if (out.wants(1)) {
                    const Tensor dw = Tensor::empty(problem.w_shape(), problem.dtype, on);
                    execute_backward_weight(
                        choices->get(problem, Direction::backward_weight, on, WeightUse::once),
                        problem, x, dy_half, dw, /*accumulate=*/false);
                    put(dw, out.target(1));
                  }
                  if (out.wants(0)) {
                    const Tensor dx = Tensor::empty(problem.x_shape(), problem.dtype, on);
                    execute_backward_data(
                        choices->get(problem, Direction::backward_data, on, WeightUse::once),
                        problem, dy_half, w, dx);
                    put(dx, out.target(0));
                  }
                });
}

}  // namespace

Conv2dProblem conv2d_problem(const Shape& x, const Shape& w, const Conv2dParams& params,
                             DType dtype, const char* operation) {
  CONVSCOPE_CHECK(x.rank() == 4, operation, "expected x of rank 4 [N,C,H,W], got ", x);
  CONVSCOPE_CHECK(w.rank() == 4, operation, "expected w of rank 4 [K,C/G,R,S], got ", w);
  CONVSCOPE_CHECK(params.groups >= 1, operation, "expected groups of at least 1, got ",
                  params.groups);
  CONVSCOPE_CHECK(x[1] == w[1] * params.groups, operation, "expected x with ", w[1] * params.groups,
                  " channels because w is ", w, " with groups ", params.groups, ", got x ", x);
  const Conv2dProblem problem{.n = x[0],
                              .c = x[1],
                              .h = x[2],
                              .w = x[3],
                              .k = w[0],
                              .r = w[2],
                              .s = w[3],
                              .stride_h = params.stride_h,
                              .stride_w = params.stride_w,
                              .pad_top = params.padding.top,
                              .pad_bottom = params.padding.bottom,
                              .pad_left = params.padding.left,
                              .pad_right = params.padding.right,
                              .dilation_h = params.dilation_h,
                              .dilation_w = params.dilation_w,
                              .groups = params.groups,
                              .dtype = dtype == DType::f32 ? factor_type(params.precision) : dtype,
                              .math = math_mode(params.precision)};
  problem.check();
  return problem;
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& b, const Conv2dParams& params,
                const Conv2dPolicy& policy) {
  return conv2d(x, w, b, params, make_ref<Conv2dChoices>(policy));
}

Variable conv2d(const Variable& x, const Variable& w, const Variable& b, const Conv2dParams& params,
                const Ref<Conv2dChoices>& choices) {
  check_operands(x, w, b);
  const Conv2dProblem problem = conv2d_problem(x.shape(), w.shape(), params, x.dtype());
  const Device device = x.device();
  if (is_half(problem.dtype)) return conv2d_half(problem, x, w, b, choices);
  Tensor y = Tensor::empty(problem.y_shape(), x.dtype(), device);
  execute_forward(choices->get(problem, Direction::forward, device, use_of(x, w, b)), problem,
                  x.value(), w.value(), b.defined() ? b.value() : Tensor(), y);
  return record(
      kOperation, y, {x, w, b},
      [problem, choices, x = w.requires_grad() ? x.value() : Tensor(),
       w = x.requires_grad() ? w.value() : Tensor()](const Tensor& dy, GradientSink& out) {
        const Device on = dy.device();
        if (out.wants(2)) {
          const GradientSink::Target db = out.target(2);
          conv2d_bias_gradient_kernel.get(on)(dy, db.tensor, db.accumulate);
        }
        if (out.wants(1)) {
          const GradientSink::Target dw = out.target(1);
          execute_backward_weight(
              choices->get(problem, Direction::backward_weight, on, WeightUse::once), problem, x,
              dy, dw.tensor, dw.accumulate);
        }
        if (out.wants(0)) {
          Tensor dx = Tensor::empty(problem.x_shape(), problem.dtype, on);
          execute_backward_data(
              choices->get(problem, Direction::backward_data, on, WeightUse::once), problem, dy, w,
              dx);
          out.add(0, std::move(dx));
        }
      });
}

}  // namespace convscope
