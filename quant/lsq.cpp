// SPDX-License-Identifier: Apache-2.0
#include "quant/lsq.h"

#include <cmath>

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const LsqRule&, const Tensor&)> lsq_kernel{
    "lsq"};
constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const LsqRule&,
                          const Tensor&, const Tensor&)>
    lsq_gradient_kernel{"lsq"};

namespace {

void check(const Tensor& v, const Tensor& step, const LsqRule& rule) {
  CONVSCOPE_CHECK(v.defined() && (v.dtype() == DType::f32 || v.dtype() == DType::f64), "lsq",
                  "expected v of type f32 or f64, got ", v.str());
  CONVSCOPE_CHECK(step.defined() && step.dtype() == v.dtype() && step.device() == v.device(), "lsq",
                  "expected steps of the type and on the device of v because v is ", v.str(),
                  ", got ", step.str());
  const bool by_channel = v.rank() > 0 && step.shape() == Shape{v.dim(0)};
  CONVSCOPE_CHECK(step.shape() == Shape{1} || by_channel, "lsq",
                  "expected one step [1], or one for each row of v because v is ", v.shape(),
                  ", got ", step.shape());
  const IntegerGrid& grid = rule.grid;
  CONVSCOPE_CHECK(grid.qn >= 0 && grid.qp >= 1 && grid.qn <= 256 && grid.qp <= 256, "lsq",
                  "expected a grid -Qn..Qp with 0 <= Qn <= 256 and 1 <= Qp <= 256, got -", grid.qn,
                  "..", grid.qp);
  CONVSCOPE_CHECK(std::isfinite(rule.g) && rule.g > 0, "lsq",
                  "expected a finite scale of the step's gradient above 0, got ", rule.g);
}

}  // namespace

double lsq_grad_scale(std::int64_t count, int qp) {
  CONVSCOPE_CHECK(count >= 0 && qp >= 1, "lsq", "expected a count >= 0 and Qp >= 1, got ", count,
                  " and ", qp);
  return 1.0 / std::sqrt(static_cast<double>(count > 0 ? count : 1) * qp);
}

Variable lsq_quantize(const Variable& v, const Variable& step, const LsqRule& rule) {
  check(v.value(), step.value(), rule);
  const Tensor y = Tensor::empty(v.shape(), v.dtype(), v.device());
  if (y.numel() > 0) lsq_kernel.get(v.device())(v.value(), step.value(), rule, y);
  return record("lsq", y, {v, step},
                [v = v.value(), step = step.value(), rule](const Tensor& dy, GradientSink& out) {
                  const Tensor dv =
                      out.wants(0) ? Tensor::empty(v.shape(), v.dtype(), v.device()) : Tensor();
                  const Tensor dstep = Tensor::zeros(step.shape(), DType::f64, step.device());
                  if (v.numel() > 0) {
                    lsq_gradient_kernel.get(v.device())(dy, v, step, rule, dv, dstep);
                  }
                  if (out.wants(0)) out.add(0, dv);
                  if (out.wants(1)) out.add(1, dstep.to(step.dtype()));
                });
}

}  // namespace convscope
