// SPDX-License-Identifier: Apache-2.0
// bce.cpp: binary cross-entropy with logits: each output is an independent yes or no, and the
// targets are one-hot.
//
// Shapes    x [N,K] logits, labels [N] -> the loss in nats, one element; f32 or f64
// Formula   loss = mean over n and k of -(t log s(x) + (1 - t) log(1 - s(x)))
//                = mean over n and k of max(x, 0) - x t - log s(|x|)
//           with t[n,k] = [k = label[n]] and s(x) = 1 / (1 + exp(-x)). In the second line no exp
//           overflows, and no logarithm is of 0.
// Backward  dx = (s(x) - t) / (N K) * dloss; saved: s(x)
// Options   pos_weight[k] multiplies the term and the gradient of output k where t = 1, as in
//           PyTorch; then saved: dx N K / dloss
// Usage     in a config: train: {loss: bce}, train: {loss: {type: bce, pos_weight: [1, 1, 5]}}
#include "framework/ops/elementwise.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/losses/class_weights.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

constexpr const char* kPosWeight = "pos_weight";

class BinaryCrossEntropy final : public LossOperation {
 public:
  explicit BinaryCrossEntropy(const Options& options) : LossOperation("bce") {
    if (options.has(kPosWeight)) pos_weight_ = options.numbers(kPosWeight);
  }
  void prepare(const Shape& rows, DType dtype, Device device) override {
    if (pos_weight_.empty()) return;
    CONVSCOPE_CHECK(std::ssize(pos_weight_) == rows[1], kind().data(), "expected ", rows[1],
                    " numbers of pos_weight because there are ", rows[1], " classes, got ",
                    pos_weight_.size());
    std::vector<double> less;
    for (const double weight : pos_weight_) less.push_back(1 - weight);
    less_ = constants(less, dtype, device);
  }
  Shape scratch_shape(const Shape& x) const override {
    return pos_weight_.empty() ? Shape{1} : LossScratch::holding({x, x});
  }
  void run(const Forward& a) const override {
    const auto unary = unary_kernel.get(a.device());
    const auto binary = binary_kernel.get(a.device());
    const auto scale = scale_kernel.get(a.device());
    scale(0.0, a.x, a.saved);
    softmax_gradient_kernel.get(a.device())(a.saved, a.labels, 1.0, a.saved);  // -t
    Tensor more, part;                                                         // t (pos_weight - 1)
    if (!pos_weight_.empty()) {
      LossScratch cut(a.scratch);
      more = cut.take(a.x.shape());
      part = cut.take(a.x.shape());
      binary(BinaryOp::mul, a.saved, less_, more);
    }
    binary(BinaryOp::mul, a.x, a.saved, a.saved);  // -x t
    unary(UnaryOp::relu, a.x, a.terms);            // max(x, 0)
    binary(BinaryOp::add, a.terms, a.saved, a.saved);
    scale(2.0, a.terms, a.terms);
    binary(BinaryOp::sub, a.terms, a.x, a.terms);  // |x|
    unary(UnaryOp::sigmoid, a.terms, a.terms);
    unary(UnaryOp::log, a.terms, a.terms);
    binary(BinaryOp::sub, a.saved, a.terms, a.terms);
    unary(UnaryOp::sigmoid, a.x, a.saved);
    if (pos_weight_.empty()) return;
    softmax_gradient_kernel.get(a.device())(a.saved, a.labels, 1.0, a.saved);
    for (const Tensor& each : {a.terms, a.saved}) {
      binary(BinaryOp::mul, each, more, part);
      binary(BinaryOp::add, each, part, each);
    }
  }
  void run(const Backward& a) const override {
    if (!pos_weight_.empty()) return scale_kernel.get(a.device())(a.factor, a.saved, a.dx);
    softmax_gradient_kernel.get(a.device())(a.saved, a.labels, a.factor, a.dx);
  }

 private:
  std::vector<double> pos_weight_;  // empty: not given
  Tensor less_;                     // [K]: 1 - pos_weight
};

}  // namespace

CONVSCOPE_REGISTER_LOSS("bce",
                        {.doc = "binary cross-entropy of each output, against one-hot targets",
                         .fields = {{.name = kPosWeight,
                                     .type = OptionType::numbers,
                                     .doc = "factor of each class's term where it is the target, "
                                            "such as [1, 1, 5] (default: 1 for each class)",
                                     .min = 0}},
                         .make = make_loss<BinaryCrossEntropy>})

}  // namespace convscope
