// SPDX-License-Identifier: Apache-2.0
// joint_backward.cpp: the table of kernels that compute both gradients of a convolution at once.
#include "layers/plan/joint_backward.h"

namespace convscope {
namespace {

Registry<JointBackward>& table(DeviceType device) {
  static Registry<JointBackward> cpu("joint backward pass");
  static Registry<JointBackward> cuda("joint backward pass");
  return device == DeviceType::cpu ? cpu : cuda;
}

}  // namespace

bool register_joint_backward(const Conv2dAlgorithm& algorithm, const JointBackward& both,
                             const char* file) {
  return table(algorithm.device).add(algorithm.name, both, file);
}

const JointBackward* joint_backward_of(const Conv2dAlgorithm& algorithm,
                                       const Conv2dProblem& problem) {
  const JointBackward* const both = table(algorithm.device).find(algorithm.name);
  return both != nullptr && both->fits(problem) ? both : nullptr;
}

const JointBackward* faster_joint_backward_of(const Conv2dAlgorithm& algorithm,
                                              const Conv2dProblem& problem) {
  const JointBackward* const both = joint_backward_of(algorithm, problem);
  if (both == nullptr) return nullptr;
  const double together =
      estimated_ms(cost_key_of(algorithm, Direction::backward_weight), both->cost(problem),
                   algorithm.device, operand_type_of(problem));
  const double apart = estimated_ms(algorithm, problem, Direction::backward_data) +
                       estimated_ms(algorithm, problem, Direction::backward_weight);
  return together < apart ? both : nullptr;
}

void run_joint_backward(const Conv2dAlgorithm& algorithm, const JointBackward& both,
                        const Conv2dBackwardDataArgs& data,
                        const Conv2dBackwardWeightArgs& weight) {
  for (const Direction direction : {Direction::backward_data, Direction::backward_weight}) {
    kernel_ran(algorithm.name, name_of(direction), data.problem);
  }
  both.run(data, weight);
}

}  // namespace convscope
