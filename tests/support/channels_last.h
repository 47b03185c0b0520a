// SPDX-License-Identifier: Apache-2.0
// channels_last.h: the problem of a layer of halves as planned steps on a GPU have it.
#pragma once

#include "experiments/check/matrix/convolution_case.h"

namespace convscope::testing {

// The form of the problem in `half` with its channels last; the problem itself when it has none.
inline Conv2dProblem halves_with_channels_last(const char* text, DType half) {
  Conv2dProblem problem = Conv2dProblem::parse(text);
  problem.dtype = half;
  for (const Conv2dProblem& form : matrix::forms_of(problem)) {
    if (form.layout == ActivationLayout::channels_last) return form;
  }
  return problem;
}

}  // namespace convscope::testing
