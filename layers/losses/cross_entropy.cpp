// SPDX-License-Identifier: Apache-2.0
// cross_entropy.cpp: the loss of a classifier whose images have one class each.
#include "layers/losses/cross_entropy.h"

#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/losses/class_weights.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

constexpr unsigned kClasses = 1u << 1;  // the axis of the classes of rows [R,K]

class CrossEntropy final : public LossOperation {
 public:
  CrossEntropy() : LossOperation(kSoftmaxCrossEntropy) {}
  Shape terms_shape(const Shape& x) const override { return {x[0]}; }
  void run(const Forward& a) const override {
    softmax_kernel.get(a.device())(a.x, a.labels, a.saved, a.terms);
  }
  void run(const Backward& a) const override {
    softmax_gradient_kernel.get(a.device())(a.saved, a.labels, a.factor, a.dx);
  }
};

// With class weights or label smoothing. No kernel of a layer fuses this operation.
class WeightedCrossEntropy final : public LossOperation {
 public:
  explicit WeightedCrossEntropy(const Options& options)
      : LossOperation("cross_entropy"),
        smoothing_(options.number("label_smoothing")),
        weights_(options) {}
  void prepare(const Shape& rows, DType dtype, Device device) override {
    weights_.prepare(kind().data(), rows, dtype, device);
  }
  Shape terms_shape(const Shape& x) const override { return {x[0]}; }
  Shape scratch_shape(const Shape& x) const override {
    return LossScratch::holding(
        {x, x, {x[0]}, {x[0]}, {x[1]}, {1}, ClassWeights::scratch_shape(x)});
  }
  void run(const Forward& a) const override {
    const auto binary = binary_kernel.get(a.device());
    const auto scale = scale_kernel.get(a.device());
    const auto sum = sum_kernel.get(a.device());
    const std::int64_t rows = a.x.dim(0), classes = a.x.dim(1);
    const auto column = [rows](const Tensor& x) { return x.reshape({rows, 1}); };
    LossScratch cut(a.scratch);
    const Tensor c = cut.take(a.x.shape()), smooth = cut.take(a.x.shape()), all = cut.take({rows}),
                 own = cut.take({rows}), share = cut.take({classes}), total = cut.take({1});
    softmax_kernel.get(a.device())(a.x, a.labels, a.saved, a.terms);
    minus_one_hot(a.saved, a.labels, c);
    const Tensor v = weights_.of_batch(c, label_counts.get(), cut.rest());
    if (smoothing_ > 0) {
      // -log p[k] = x[label] - x[k] - log p[label]: the differences of the logits come first,
      // because they are small where the logits are large.
      binary(BinaryOp::mul, a.x, c, smooth);
      sum(smooth, kClasses, all);  // -x[label]
      binary(BinaryOp::add, a.x, column(all), smooth);
      binary(BinaryOp::sub, column(a.terms), smooth, smooth);
      scale(smoothing_ / static_cast<double>(classes), v, share);
      binary(BinaryOp::mul, smooth, share, smooth);
      sum(smooth, kClasses, all);  // sum over k of v[k] s / K * -log p[k]
    }
    // c = -(1 - s) v[label] at the label, and 0 elsewhere
    binary(BinaryOp::mul, c, v, c);
    if (smoothing_ > 0) scale(1 - smoothing_, c, c);
    sum(c, kClasses, own);
    scale(-1.0, own, own);
    binary(BinaryOp::mul, a.terms, own, a.terms);
    if (smoothing_ > 0) {
      binary(BinaryOp::add, a.terms, all, a.terms);
      sum(share, 1u << 0, total);
      binary(BinaryOp::add, own, total, own);
      binary(BinaryOp::sub, c, share, c);
    }
    binary(BinaryOp::mul, a.saved, column(own), a.saved);
    binary(BinaryOp::add, a.saved, c, a.saved);
  }
  void run(const Backward& a) const override {
    scale_kernel.get(a.device())(a.factor, a.saved, a.dx);
  }

 private:
  double smoothing_;
  ClassWeights weights_;
};

std::unique_ptr<LossOperation> make_cross_entropy(const Options& options) {
  const bool is_plain = options.number("label_smoothing") == 0 && !options.has(kClassWeights);
  return is_plain ? make_loss<CrossEntropy>(options) : make_loss<WeightedCrossEntropy>(options);
}

}  // namespace

Variable softmax_cross_entropy(const Variable& logits, const Tensor& labels) {
  static const Loss loss;
  return loss(logits, labels);
}

CONVSCOPE_REGISTER_LOSS(
    "cross_entropy",
    {.doc = "one class for each image: -log softmax(x)[label], mean over the images",
     .fields = {{.name = "label_smoothing",
                 .type = OptionType::number,
                 .default_value = 0.0,
                 .doc = "label smoothing: part of the target that all classes share, 0 to 1",
                 .min = 0,
                 .max = 1},
                class_weights_field()},
     .make = make_cross_entropy})

}  // namespace convscope
