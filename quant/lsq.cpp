// SPDX-License-Identifier: Apache-2.0
// lsq.cpp: learned step size quantisation: rounds a value to integer multiples of a step size, with
// gradients for the value and for the step size.
#include "quant/lsq.h"

#include <cmath>

#include "quant/lsq_pieces.h"

namespace convscope {

constinit KernelSlot<void(const LsqForward*, int)> lsq_kernel{"lsq"};
constinit KernelSlot<void(const LsqBackward*, int)> lsq_gradient_kernel{"lsq"};

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

void check_steps(const Tensor& steps) {
  for (std::int64_t i = 0; i < steps.numel(); ++i) {
    const double s = steps.at(i);
    CONVSCOPE_CHECK(std::isfinite(s) && s > 0, "lsq", "expected finite steps above 0, got ", s,
                    " as step ", i);
  }
}

double lsq_grad_scale(std::int64_t count, int qp) {
  CONVSCOPE_CHECK(count >= 0 && qp >= 1, "lsq", "expected a count >= 0 and Qp >= 1, got ", count,
                  " and ", qp);
  return 1.0 / std::sqrt(static_cast<double>(count > 0 ? count : 1) * qp);
}

namespace {

class LsqOperation final : public Operation {
 public:
  LsqOperation(const LsqRule& rule, const StepBounds& bounds) : parts_{rule, bounds} {}
  const LsqParts& parts() const { return parts_; }
  const char* name() const override { return "lsq"; }
  std::string text() const override {
    return cat("fake quantiser -", parts_.rule.grid.qn, "..", parts_.rule.grid.qp);
  }
  OperationKeeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
  void forward(const OperationForward& a) const override {
    const LsqForward one = forward_of(a);
    lsq_kernel.get(a.device())(&one, 1);
  }
  void backward(const OperationBackward& a) const override {
    const LsqBackward one = backward_of(a);
    lsq_gradient_kernel.get(a.device())(&one, 1);
  }

  bool runs_with(const Operation& other) const override {
    return dynamic_cast<const LsqOperation*>(&other) != nullptr;
  }
  void forward_together(const Operation* const* all, const OperationForward* a,
                        int count) const override {
    std::vector<LsqForward> list;
    for (int i = 0; i < count; ++i) list.push_back(of(all[i]).forward_of(a[i]));
    lsq_kernel.get(a->device())(list.data(), count);
  }
  void backward_together(const Operation* const* all, const OperationBackward* a,
                         int count) const override {
    std::vector<LsqBackward> list;
    for (int i = 0; i < count; ++i) list.push_back(of(all[i]).backward_of(a[i]));
    lsq_gradient_kernel.get(a->device())(list.data(), count);
  }

  // Runs on pieces (lsq_pieces.h) if all values share one step.
  bool runs_on_pieces() const override { return true; }
  void begin(const OperationForward& a) const override {
    put_into_bounds(a.x[1], parts_.bounds, parts_.rule.form);
  }
  void forward_piece(const OperationForward& a, const float* v, float* y,
                     std::int64_t count) const override {
    lsq_forward_piece(a.x[1], parts_.rule, v, y, count);
  }
  double backward_piece(const OperationBackward& a, const float* dy, const float* v, float* dv,
                        std::int64_t count) const override {
    return lsq_backward_piece(a.x[1], parts_.rule, dy, v, dv, count);
  }
  void end(const OperationBackward& a, double sum) const override {
    if (!a.dx[1].defined()) return;
    *a.dx[1].data<float>() = static_cast<float>(lsq_step_gradient(a.x[1], parts_.rule, sum));
  }

 private:
  static const LsqOperation& of(const Operation* operation) {
    return static_cast<const LsqOperation&>(*operation);
  }
  LsqForward forward_of(const OperationForward& a) const {
    return {.v = a.x[0], .step = a.x[1], .rule = parts_.rule, .bounds = parts_.bounds, .y = a.y};
  }
  LsqBackward backward_of(const OperationBackward& a) const {
    return {.dy = a.dy,
            .v = a.x[0],
            .step = a.x[1],
            .rule = parts_.rule,
            .bounds = parts_.bounds,
            .dv = a.dx[0],
            .dstep = a.dx[1]};
  }

  LsqParts parts_;
};

}  // namespace

const LsqParts* lsq_parts(const Operation* operation) {
  const auto* const lsq = dynamic_cast<const LsqOperation*>(operation);
  return lsq == nullptr ? nullptr : &lsq->parts();
}

Ref<const Operation> lsq_operation(const LsqRule& rule, const StepBounds& bounds) {
  return make_ref<LsqOperation>(rule, bounds);
}

Variable lsq_quantize(const Variable& v, const Variable& step, const LsqRule& rule) {
  check(v.value(), step.value(), rule);
  // Here steps have no bounds. A quantiser passes bounds to lsq_operation().
  if (rule.form == StepForm::plain) check_steps(step.value().to(Device{}));
  return apply(lsq_operation(rule, {}), {v, step});
}

}  // namespace convscope
