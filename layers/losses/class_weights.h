// SPDX-License-Identifier: Apache-2.0
// class_weights.h: weights of the classes in a loss. The loss of a batch is the weighted mean of
// its rows, as in PyTorch:
//
//   loss = sum over r of w[label[r]] l[r] / sum over r of w[label[r]]
//        = mean over r of v[label[r]] l[r],   v = w / m,   m = mean over r of w[label[r]]
//
// For a batch in parts, m is the mean over the labels of the whole batch (Loss::for_parts()), so
// the mean over the parts is the loss of the whole batch. If no label has a weight above 0, the
// loss is 0.
#pragma once

#include <vector>

#include "framework/options.h"
#include "framework/tensor.h"
#include "layers/losses/loss.h"
#include "layers/losses/scratch.h"

namespace convscope {

inline constexpr const char* kClassWeights = "class_weights";
const OptionField& class_weights_field();

// Sets out [R,K] to -1 at the label of each row and to 0 elsewhere. `finite` is any tensor [R,K] of
// finite numbers.
void minus_one_hot(const Tensor& finite, const Tensor& labels, const Tensor& out);

// Returns the numbers as a tensor [K].
Tensor constants(const std::vector<double>& values, DType dtype, Device device);

class ClassWeights {
 public:
  // Takes w from the option class_weights. Without it, v is 1 for each class.
  explicit ClassWeights(const Options& options);
  bool is_given() const { return !weights_.empty(); }

  // Prepares for rows [R,K]. Fails when there are not K weights. `more` multiplies v: one number
  // for each class; empty: 1.
  void prepare(const char* operation, const Shape& rows, DType dtype, Device device,
               const std::vector<double>& more = {});
  static Shape scratch_shape(const Shape& rows) {
    return LossScratch::holding({{rows[1]}, {1}, {1}});
  }
  // Returns v [K], times `more`. `minus_one_hot` has -1 at each label.
  Tensor of_batch(const Tensor& minus_one_hot, const LabelCounts* counts,
                  const Tensor& scratch) const;

 private:
  std::vector<double> weights_;  // empty: not given
  Tensor weight_, factor_;       // [K]: w; w times `more`
};

}  // namespace convscope
