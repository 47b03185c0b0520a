// SPDX-License-Identifier: Apache-2.0
// operator_use.h: an interface that answers questions about an operator for one input, without the
// type of its problem. `convscope explain`, layers.csv and the benchmark of networks use it. A
// layer implements the interface in one line:
//
//   std::unique_ptr<OperatorUse> operator_use(const Shape& input) const override {
//     return operator_use_of(problem(input), policy(), name);
//   }
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/dispatch/half_problem.h"
#include "layers/dispatch/select.h"

namespace convscope {

class CONVSCOPE_API OperatorUse {
 public:
  OperatorUse() = default;
  virtual ~OperatorUse();
  OperatorUse(const OperatorUse&) = delete;
  OperatorUse& operator=(const OperatorUse&) = delete;

  virtual const char* operation() const = 0;  // "conv2d"
  virtual std::string problem() const = 0;    // its text
  virtual std::string kernel() const = 0;     // size of the kernel: "3", "3x5"
  virtual double nominal_flops() const = 0;   // of each direction
  virtual const AlgorithmPolicy& policy() const = 0;
  // Returns the names that the policy selects; "measure" may time them.
  virtual ChosenNames choose(Direction direction, Device device, WeightUse use) const = 0;
  // Returns the verdicts that tables show. Nothing is run, and a refusal is not an error. `layout`
  // is the layout of the images; NHWC is that of a compiled step in half precision
  // (half_problem.h).
  virtual std::vector<Verdict> explain(Direction direction, Device device,
                                       ImageLayouts layout = {}) const = 0;
  virtual Decision decision(Direction direction, Device device, ImageLayouts layout = {}) const = 0;
};

template <class Problem>
class OperatorUseOf final : public OperatorUse {
 public:
  OperatorUseOf(const Problem& problem, const AlgorithmPolicy& policy, const std::string& layer)
      : problem_(problem), policy_(policy), layer_(layer) {}

  const char* operation() const override { return Operator<Problem>::kOperation; }
  std::string problem() const override { return problem_.text(); }
  std::string kernel() const override { return problem_.kernel_text(); }
  double nominal_flops() const override { return problem_.nominal_flops(); }
  const AlgorithmPolicy& policy() const override { return policy_; }
  ChosenNames choose(Direction direction, Device device, WeightUse use) const override {
    const Choice<Problem> choice =
        select_algorithm(policy_.of(direction), problem_, direction, device, use, layer_);
    return {choice.algorithm->name,
            choice.checked_by == nullptr ? std::string() : choice.checked_by->name};
  }
  std::vector<Verdict> explain(Direction direction, Device device,
                               ImageLayouts layout) const override {
    return convscope::explain(policy_.of(direction), asked_about(layout), direction, device);
  }
  Decision decision(Direction direction, Device device, ImageLayouts layout) const override {
    return decide_unrun<Problem>(
        policy_.of(direction),
        question_of(asked_about(layout), direction, device, WeightUse::once, layer_));
  }

 private:
  Problem asked_about(ImageLayouts layout) const {
    if constexpr (requires(Problem problem) {
                    problem.layout;
                    problem.types;
                  }) {
      if (layout == ActivationLayout::nhwc) return with_nhwc(problem_);
      Problem out = problem_;
      out.layout = layout;
      return out;
    }
    return problem_;
  }

  Problem problem_;
  AlgorithmPolicy policy_;
  std::string layer_;
};

template <class Problem>
std::unique_ptr<OperatorUse> operator_use_of(const Problem& problem, const AlgorithmPolicy& policy,
                                             const std::string& layer = {}) {
  return std::make_unique<OperatorUseOf<Problem>>(problem, policy, layer);
}

}  // namespace convscope
