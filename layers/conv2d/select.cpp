// SPDX-License-Identifier: Apache-2.0
// select.cpp: finds the convolution algorithm that a policy's entry selects; instantiates
// layers/dispatch/select.h once.
#include "layers/conv2d/select.h"

namespace convscope {

template class ChoiceCache<Conv2dProblem>;

Conv2dChoice select_conv2d(const std::string& policy, const Conv2dProblem& problem,
                           Direction direction, Device device) {
  return select_algorithm(policy, problem, direction, device);
}

void check_conv2d_policy(const std::string& policy, Device device) {
  check_policy(Operator<Conv2dProblem>::kOperation, policy, device,
               conv2d_algorithms(device.type).names());
}

std::vector<Conv2dVerdict> explain_conv2d(const std::string& policy, const Conv2dProblem& problem,
                                          Direction direction, Device device) {
  return explain(policy, problem, direction, device);
}

const Conv2dAlgorithm* measured_conv2d(const Conv2dProblem& problem, Direction direction,
                                       Device device) {
  return measured<Conv2dProblem>(question_of(problem, direction, device));
}

}  // namespace convscope
