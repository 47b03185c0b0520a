// SPDX-License-Identifier: Apache-2.0
// cross_entropy.cpp: the loss of a classifier whose images have one class each.
#include "layers/losses/cross_entropy.h"

#include "framework/ops/softmax_cross_entropy.h"
#include "layers/losses/loss.h"

namespace convscope {
namespace {

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

}  // namespace

Variable softmax_cross_entropy(const Variable& logits, const Tensor& labels) {
  return loss_types().get("cross_entropy")(logits, labels);
}

CONVSCOPE_REGISTER_LOSS("cross_entropy", CrossEntropy,
                        "one class for each image: -log softmax(x)[label], mean over the images")

}  // namespace convscope
