// SPDX-License-Identifier: Apache-2.0
// focal.cpp: cross-entropy that gives little weight to rows that are already classified well.
//
// Shapes    x [N,K] logits, labels [N] -> the loss, one element; f32 or f64
// Formula   loss = mean over n of f (1 - p)^gamma * -log p, with p = softmax(x[n])[label[n]]
//           f = v[label[n]] (class_weights.h), times, with alpha, 1 - alpha for class 0 (the
//           background) and alpha for all others
// Backward  dx[n,k] = f (q^gamma - gamma q^(gamma - 1) p log p) (softmax(x[n])[k] - [k = label[n]])
//                     / N * dloss, with q = 1 - p; saved: this gradient, times N
// Numerics  q is the sum of the other classes' probabilities, so its relative error is small where
//           p is almost 1
// Usage     in a config: train: {loss: focal}, train: {loss: {type: focal, gamma: 1.5}}
// Paper     T.-Y. Lin, P. Goyal, R. Girshick, K. He, P. Dollar: Focal Loss for Dense Object
//           Detection, ICCV 2017, arXiv 1708.02002. Its two classes have the weights 1 - alpha and
//           alpha.
#include <optional>

#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/losses/class_weights.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

class FocalLoss final : public LossOperation {
 public:
  explicit FocalLoss(const Options& options)
      : LossOperation("focal"), gamma_(options.number("gamma")), weights_(options) {
    if (options.has("alpha")) alpha_ = options.number("alpha");
  }
  void prepare(const Shape& rows, DType dtype, Device device) override {
    std::vector<double> factors;
    if (alpha_) {
      factors.assign(static_cast<std::size_t>(rows[1]), *alpha_);
      factors[0] = 1 - *alpha_;
    }
    weights_.prepare(kind().data(), rows, dtype, device, factors);
  }
  Shape terms_shape(const Shape& x) const override { return {x[0]}; }
  Shape scratch_shape(const Shape& x) const override {
    const Shape row{x[0]};
    return LossScratch::holding({x, row, row, row, row, row, ClassWeights::scratch_shape(x)});
  }
  void run(const Forward& a) const override {
    constexpr unsigned kClasses = 1u << 1;
    constexpr double kTiny = 1e-30;  // with it, log q and l / q are finite
    const auto unary = unary_kernel.get(a.device());
    const auto binary = binary_kernel.get(a.device());
    const auto scale = scale_kernel.get(a.device());
    const auto sum = sum_kernel.get(a.device());
    const auto gradient = softmax_gradient_kernel.get(a.device());
    const Shape rows{a.x.dim(0)};
    LossScratch cut(a.scratch);
    const Tensor all = cut.take(a.x.shape()), f = cut.take(rows), q = cut.take(rows),
                 one = cut.take(rows), power = cut.take(rows), slope = cut.take(rows);
    const Tensor& l = a.terms;
    softmax_kernel.get(a.device())(a.x, a.labels, a.saved, l);  // l = -log p
    const bool has_factors = alpha_ || weights_.is_given();
    if (has_factors) {
      minus_one_hot(a.saved, a.labels, all);
      binary(BinaryOp::mul, all, weights_.of_batch(all, label_counts.get(), cut.rest()), all);
      sum(all, kClasses, f);
      scale(-1.0, f, f);
    }
    gradient(a.saved, a.labels, 1.0, a.saved);
    unary(UnaryOp::relu, a.saved, all);  // 0 at the label
    sum(all, kClasses, q);
    scale(0.0, q, one);
    unary(UnaryOp::exp, one, one);
    scale(kTiny, one, slope);
    binary(BinaryOp::add, q, slope, q);
    unary(UnaryOp::log, q, power);
    scale(gamma_, power, power);
    unary(UnaryOp::exp, power, power);
    if (has_factors) binary(BinaryOp::mul, power, f, power);  // f q^gamma
    scale(-1.0, l, slope);
    unary(UnaryOp::exp, slope, slope);
    binary(BinaryOp::mul, slope, l, slope);
    binary(BinaryOp::div, slope, q, slope);
    scale(gamma_, slope, slope);
    binary(BinaryOp::add, slope, one, slope);  // 1 - gamma p log p / q
    binary(BinaryOp::mul, slope, power, slope);
    binary(BinaryOp::mul, a.saved, slope.reshape({rows[0], 1}), a.saved);
    binary(BinaryOp::mul, l, power, l);
  }
  void run(const Backward& a) const override {
    scale_kernel.get(a.device())(a.factor, a.saved, a.dx);
  }

 private:
  double gamma_;
  std::optional<double> alpha_;
  ClassWeights weights_;
};

}  // namespace

CONVSCOPE_REGISTER_LOSS(
    "focal", {.doc = "(1 - p)^gamma -log p of the label's probability p (Lin et al. 2017)",
              .fields = {{.name = "gamma",
                          .type = OptionType::number,
                          .default_value = 2.0,
                          .doc = "exponent: how little rows count that are classified well; 0 = "
                                 "cross-entropy",
                          .min = 0,
                          .max = 100},
                         {.name = "alpha",
                          .type = OptionType::number,
                          .doc = "weight of all classes but class 0, which has 1 - alpha; 0 to 1 "
                                 "(default: none)",
                          .min = 0,
                          .max = 1},
                         class_weights_field()},
              .make = make_loss<FocalLoss>})

}  // namespace convscope
