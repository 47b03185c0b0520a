// SPDX-License-Identifier: Apache-2.0
// select.h: finds the convolution algorithm that a policy's entry ("auto", "measure", "check:a,b"
// or a name) selects. Instantiates layers/dispatch/select.h once.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "layers/conv2d/policy.h"
#include "layers/dispatch/choice_cache.h"

namespace convscope {

extern template class ChoiceCache<Conv2dProblem>;

using Conv2dChoice = Choice<Conv2dProblem>;
using Conv2dChoices = ChoiceCache<Conv2dProblem>;  // of one layer
using Conv2dVerdict = Verdict;

CONVSCOPE_API Conv2dChoice select_conv2d(const std::string& policy, const Conv2dProblem& problem,
                                         Direction direction, Device device);
CONVSCOPE_API void check_conv2d_policy(const std::string& policy, Device device);
CONVSCOPE_API std::vector<Conv2dVerdict> explain_conv2d(const std::string& policy,
                                                        const Conv2dProblem& problem,
                                                        Direction direction, Device device);

// Returns the algorithm that "measure" found earlier for this problem, or null. Times nothing.
CONVSCOPE_API const Conv2dAlgorithm* measured_conv2d(const Conv2dProblem& problem,
                                                     Direction direction, Device device);

}  // namespace convscope
