// SPDX-License-Identifier: Apache-2.0
// nhwc.h: convolution problems in fp16/bf16 and NHWC, as compiled steps on a GPU use them.
#pragma once

#include "experiments/check/matrix/convolution_case.h"

namespace convscope::testing {

// Returns the problem in `text` in NHWC and in the type `half`. If this variant does not exist,
// returns the problem itself.
inline Conv2dProblem half_nhwc_problem(const char* text, DType half) {
  Conv2dProblem problem = Conv2dProblem::parse(text);
  problem.dtype = half;
  for (const Conv2dProblem& form : matrix::forms_of(problem)) {
    if (form.layout == ActivationLayout::nhwc) return form;
  }
  return problem;
}

}  // namespace convscope::testing
