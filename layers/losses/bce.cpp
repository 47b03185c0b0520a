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
// Usage     in a config: train: {loss: bce}
#include "framework/ops/elementwise.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

class BinaryCrossEntropy final : public LossOperation {
 public:
  BinaryCrossEntropy() : LossOperation("bce") {}
  void run(const Forward& a) const override {
    const auto unary = unary_kernel.get(a.device());
    const auto binary = binary_kernel.get(a.device());
    const auto scale = scale_kernel.get(a.device());
    scale(0.0, a.x, a.saved);
    softmax_gradient_kernel.get(a.device())(a.saved, a.labels, 1.0, a.saved);  // -t
    binary(BinaryOp::mul, a.x, a.saved, a.saved);                              // -x t
    unary(UnaryOp::relu, a.x, a.terms);                                        // max(x, 0)
    binary(BinaryOp::add, a.terms, a.saved, a.saved);
    scale(2.0, a.terms, a.terms);
    binary(BinaryOp::sub, a.terms, a.x, a.terms);  // |x|
    unary(UnaryOp::sigmoid, a.terms, a.terms);
    unary(UnaryOp::log, a.terms, a.terms);
    binary(BinaryOp::sub, a.saved, a.terms, a.terms);
    unary(UnaryOp::sigmoid, a.x, a.saved);
  }
  void run(const Backward& a) const override {
    softmax_gradient_kernel.get(a.device())(a.saved, a.labels, a.factor, a.dx);
  }
};

}  // namespace

CONVSCOPE_REGISTER_LOSS("bce", BinaryCrossEntropy,
                        "binary cross-entropy of each output, against one-hot targets")

}  // namespace convscope
