// SPDX-License-Identifier: Apache-2.0
// lsq.cpp: learned step size quantisation: rounds a value to integer multiples of a step size, with
// gradients for the value and for the step size.
#include "quant/lsq.h"

#include <cmath>

#include "layers/plan/pointwise_op.h"
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

class LsqOperation final : public PointwiseOp {
 public:
  static constexpr std::string_view kKind = "lsq";
  LsqOperation(const LsqRule& rule, const StepBounds& bounds)
      : PointwiseOp("lsq"), parts_{rule, bounds} {}
  const LsqParts& parts() const { return parts_; }
  std::string text() const override {
    return cat("fake quantiser -", parts_.rule.grid.qn, "..", parts_.rule.grid.qp);
  }
  TensorDesc bind(Graph& graph) override {
    TensorDesc out = PointwiseOp::bind(graph);
    out.kept = graph.desc(inputs[0]).kept;  // 0 stays 0
    return out;
  }
  Keeps keeps(const std::vector<Shape>&) const override { return {.inputs = true}; }
  void run(const Forward& a) const override {
    const LsqForward one = forward_of(a);
    lsq_kernel.get(a.device())(&one, 1);
  }
  void run(const Backward& a) const override {
    const LsqBackward one = backward_of(a);
    lsq_gradient_kernel.get(a.device())(&one, 1);
  }

  bool runs_with(const SimpleOperation& other) const override { return other.kind() == kKind; }
  void run_together(const SimpleOperation* const* all, const Forward* a, int count) const override {
    std::vector<LsqForward> list;
    for (int i = 0; i < count; ++i) list.push_back(of(all[i]).forward_of(a[i]));
    lsq_kernel.get(a->device())(list.data(), count);
  }
  void run_together(const SimpleOperation* const* all, const Backward* a,
                    int count) const override {
    std::vector<LsqBackward> list;
    for (int i = 0; i < count; ++i) list.push_back(of(all[i]).backward_of(a[i]));
    lsq_gradient_kernel.get(a->device())(list.data(), count);
  }

  // Pieces (lsq_pieces.h): only if all values share one step.
  ForwardPieces forward_pieces(Emitter& emitter) override {
    const Tensor step = emitter.value(inputs[1]);
    return {
        .begin = [step, parts = parts_] { put_into_bounds(step, parts.bounds, parts.rule.form); },
        .run = [step, rule = parts_.rule](
                   const float* v, float* y,
                   std::int64_t count) { lsq_forward_piece(step, rule, v, y, count); }};
  }
  BackwardPieces backward_pieces(Emitter& emitter) override {
    if (!emitter.graph().wants_gradient(output())) return {};
    const Tensor step = emitter.value(inputs[1]);
    const Tensor dstep = emitter.graph().wants_gradient(inputs[1])
                             ? emitter.gradient_target(inputs[1]).tensor
                             : Tensor();
    return {
        .run = [step, rule = parts_.rule](
                   const float* dy, const float* v, float* dv,
                   std::int64_t count) { return lsq_backward_piece(step, rule, dy, v, dv, count); },
        .end =
            [step, dstep, rule = parts_.rule](double sum) {
              if (!dstep.defined()) return;
              *dstep.data<float>() = static_cast<float>(lsq_step_gradient(step, rule, sum));
            }};
  }

 private:
  static const LsqOperation& of(const SimpleOperation* operation) {
    return static_cast<const LsqOperation&>(*operation);
  }
  LsqForward forward_of(const Forward& a) const {
    return {.v = a.x[0], .step = a.x[1], .rule = parts_.rule, .bounds = parts_.bounds, .y = a.y};
  }
  LsqBackward backward_of(const Backward& a) const {
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
  const auto* const lsq = as<LsqOperation>(operation);
  return lsq == nullptr ? nullptr : &lsq->parts();
}

Variable apply_lsq(const Variable& v, const Variable& step, const LsqRule& rule,
                   const StepBounds& bounds) {
  return apply(std::make_unique<LsqOperation>(rule, bounds), {v, step});
}

Variable lsq_quantize(const Variable& v, const Variable& step, const LsqRule& rule) {
  check(v.value(), step.value(), rule);
  // Here steps have no bounds. A quantiser passes bounds to apply_lsq().
  if (rule.form == StepForm::plain) check_steps(step.value().to(Device{}));
  return apply_lsq(v, step, rule, {});
}

}  // namespace convscope
