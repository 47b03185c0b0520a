// SPDX-License-Identifier: Apache-2.0
// focal.cpp: cross-entropy that gives little weight to rows that are already classified well.
//
// Shapes    x [N,K] logits, labels [N] -> the loss, one element; f32 or f64
// Formula   loss = mean over n of (1 - p)^2 * -log p, with p = softmax(x[n])[label[n]]; the paper's
//           gamma = 2, without its class weight alpha
// Backward  dx[n,k] = (1 - p) (1 - p - 2 p log p) (softmax(x[n])[k] - [k = label[n]]) / N * dloss
//           saved: this gradient, times N
// Usage     in a config: train: {loss: focal}
// Paper     T.-Y. Lin, P. Goyal, R. Girshick, K. He, P. Dollar: Focal Loss for Dense Object
//           Detection, ICCV 2017, arXiv 1708.02002
#include "framework/ops/elementwise.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

class FocalLoss final : public LossOperation {
 public:
  FocalLoss() : LossOperation("focal") {}
  Shape terms_shape(const Shape& x) const override { return {x[0]}; }
  Shape scratch_shape(const Shape& x) const override { return {2, x[0]}; }
  void run(const Forward& a) const override {
    const auto unary = unary_kernel.get(a.device());
    const auto binary = binary_kernel.get(a.device());
    const auto scale = scale_kernel.get(a.device());
    const Shape rows{a.x.dim(0)};
    const Tensor &loss = a.terms, p = a.scratch.slice_rows(0, 1).reshape(rows),
                 q = a.scratch.slice_rows(1, 1).reshape(rows);
    softmax_kernel.get(a.device())(a.x, a.labels, a.saved, loss);  // -log p
    scale(-1.0, loss, p);
    unary(UnaryOp::exp, p, p);
    scale(0.0, loss, q);
    unary(UnaryOp::exp, q, q);
    binary(BinaryOp::sub, q, p, q);  // 1 - p
    binary(BinaryOp::mul, p, loss, p);
    scale(2.0, p, p);
    binary(BinaryOp::add, p, q, p);
    binary(BinaryOp::mul, p, q, p);  // q (q - 2 p log p)
    softmax_gradient_kernel.get(a.device())(a.saved, a.labels, 1.0, a.saved);
    binary(BinaryOp::mul, a.saved, p.reshape({a.x.dim(0), 1}), a.saved);
    binary(BinaryOp::mul, q, q, q);
    binary(BinaryOp::mul, loss, q, loss);
  }
  void run(const Backward& a) const override {
    scale_kernel.get(a.device())(a.factor, a.saved, a.dx);
  }
};

}  // namespace

CONVSCOPE_REGISTER_LOSS("focal", FocalLoss,
                        "(1 - p)^2 -log p of the label's probability p (Lin et al. 2017)")

}  // namespace convscope
