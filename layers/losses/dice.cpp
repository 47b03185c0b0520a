// SPDX-License-Identifier: Apache-2.0
// dice.cpp: the soft Dice loss of a segmentation: the overlap of each class with its labels. It
// weighs small classes like large ones.
//
// Shapes    x [R,K] logits, labels [R] -> the loss, one element; f32 or f64
// Formula   loss = mean over k of 1 - (2 I[k] + 1) / (S[k] + 1)
//           I[k] = sum over r of p[r,k] t[r,k],  S[k] = sum over r of p[r,k] + t[r,k]
//           with p = softmax of each row and t[r,k] = [k = label[r]]. The sums are over all pixels
//           of a batch, the mean is over all classes, and 1 keeps absent classes finite. Where
//           processes share a batch, each sums over its share.
// Backward  dx[r,k] = p[r,k] (g[r,k] - sum over j of p[r,j] g[r,j]) / K * dloss, where
//           g[r,k] = (2 I[k] + 1) / (S[k] + 1)^2 - 2 t[r,k] / (S[k] + 1); saved: dx K / dloss
// Usage     in a config: train: {loss: dice}
// Paper     F. Milletari, N. Navab, S.-A. Ahmadi: V-Net, 3DV 2016, arXiv:1606.04797. Here S has no
//           squares.
#include "layers/losses/dice.h"

#include <algorithm>
#include <vector>

#include "framework/ops/elementwise.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/parallel.h"
#include "layers/losses/loss.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&, const Tensor&, const Tensor&)> dice_kernel{
    "dice"};

namespace {

constexpr std::int64_t kRowsOfChunk = 1 << 10;

// Replaces p by the gradient. `with` is added to the gradient of p at the label, `without` at all.
template <class T>
void dice_rows(T* p, const std::int32_t* labels, std::int64_t rows, std::int64_t classes,
               const std::vector<double>& with, const std::vector<double>& without) {
  parallel_for(rows, kRowsOfChunk, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* const row = p + r * classes;
      const auto label = static_cast<std::size_t>(labels[r]);
      double mean = static_cast<double>(row[label]) * with[label];
      for (std::size_t k = 0; k < without.size(); ++k) {
        mean += static_cast<double>(row[k]) * without[k];
      }
      for (std::size_t k = 0; k < without.size(); ++k) {
        const double g = without[k] + (k == label ? with[k] : 0);
        row[k] = static_cast<T>(static_cast<double>(row[k]) * (g - mean));
      }
    }
  });
}

template <class T>
void dice_typed(const Tensor& p, const Tensor& labels, const Tensor& terms) {
  const std::int64_t rows = p.dim(0), classes = p.dim(1);
  const std::int32_t* const label = labels.data<std::int32_t>();
  std::vector<double> overlap(static_cast<std::size_t>(classes)), sum(overlap);
  const T* row = p.data<T>();
  for (std::int64_t r = 0; r < rows; ++r, row += classes) {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += static_cast<double>(row[k]);
    const auto own = static_cast<std::size_t>(label[r]);
    sum[own] += 1;
    overlap[own] += static_cast<double>(row[own]);
  }
  std::vector<double> with(sum.size()), without(sum.size());
  for (std::size_t k = 0; k < sum.size(); ++k) {
    const double dice = (2 * overlap[k] + 1) / (sum[k] + 1);
    terms.data<T>()[k] = static_cast<T>(1 - dice);
    with[k] = -2 / (sum[k] + 1);
    without[k] = dice / (sum[k] + 1);
  }
  dice_rows(p.data<T>(), label, rows, classes, with, without);
}

void dice_cpu(const Tensor& p, const Tensor& labels, const Tensor&, const Tensor& terms) {
  if (p.dtype() == DType::f64) return dice_typed<double>(p, labels, terms);
  dice_typed<float>(p, labels, terms);
}

class Dice final : public LossOperation {
 public:
  Dice() : LossOperation("dice") {}
  Shape terms_shape(const Shape& x) const override { return {x[1]}; }
  Shape scratch_shape(const Shape& x) const override { return {2 * x[1]}; }
  void run(const Forward& a) const override {
    softmax_kernel.get(a.device())(a.x, a.labels, a.saved, Tensor());
    dice_kernel.get(a.device())(a.saved, a.labels, a.scratch, a.terms);
  }
  void run(const Backward& a) const override {
    scale_kernel.get(a.device())(a.factor, a.saved, a.dx);
  }
};

}  // namespace

CONVSCOPE_KERNEL(dice_kernel, cpu, dice_cpu)
CONVSCOPE_REGISTER_LOSS("dice",
                        {.doc = "1 - soft Dice of each class over the batch, mean over the classes",
                         .fields = {},
                         .make = make_loss<Dice>})

}  // namespace convscope
