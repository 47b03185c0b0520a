// SPDX-License-Identifier: Apache-2.0
// mse.cpp: the mean squared error against one-hot targets.
//
// Shapes    x [N,K], labels [N] -> the loss, one element; f32 or f64
// Formula   loss = mean over n and k of (x[n,k] - t[n,k])^2 with t[n,k] = [k = label[n]]
// Backward  dx = 2 (x - t) / (N K) * dloss; saved: x - t
// Usage     in a config: train: {loss: mse}
#include "framework/ops/elementwise.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

class MeanSquaredError final : public LossOperation {
 public:
  MeanSquaredError() : LossOperation("mse") {}
  void run(const Forward& a) const override {
    softmax_gradient_kernel.get(a.device())(a.x, a.labels, 1.0, a.saved);  // x - t
    binary_kernel.get(a.device())(BinaryOp::mul, a.saved, a.saved, a.terms);
  }
  void run(const Backward& a) const override {
    scale_kernel.get(a.device())(2 * a.factor, a.saved, a.dx);
  }
};

}  // namespace

CONVSCOPE_REGISTER_LOSS("mse", {.doc = "mean squared error between the outputs and one-hot targets",
                                .fields = {},
                                .make = make_loss<MeanSquaredError>})

}  // namespace convscope
