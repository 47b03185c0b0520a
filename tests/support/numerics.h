// SPDX-License-Identifier: Apache-2.0
// numerics.h: compares algorithms as the test matrix does
// (experiments/check/matrix/convolution_case.h), and adds to each failure the command that
// reproduces it.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "experiments/check/matrix/convolution_case.h"
#include "tests/support/tiers.h"

namespace convscope::testing {

class ConvolutionCase : public matrix::ConvolutionCase {
 public:
  using matrix::ConvolutionCase::ConvolutionCase;

  std::string check(const Conv2dAlgorithm& algorithm, Direction direction,
                    std::vector<float>* out = nullptr) {
    return with_command(algorithm, matrix::ConvolutionCase::check(algorithm, direction, out));
  }
  std::string check_everywhere(const Conv2dAlgorithm& algorithm, Direction direction,
                               const matrix::Machines& machines = {}) {
    return with_command(algorithm,
                        matrix::ConvolutionCase::check_everywhere(algorithm, direction, machines));
  }

 private:
  std::string with_command(const Conv2dAlgorithm& algorithm, const std::string& wrong) const {
    if (wrong.empty()) return wrong;
    const bool on_cpu = algorithm.device == DeviceType::cpu;
    const char* library = std::getenv("CONVSCOPE_CUDA_LIBRARY");
    return cat(
        wrong, "\nto see it again: CONVSCOPE_TEST_PROBLEM='", fault().problem.text(),
        "' CONVSCOPE_TEST_ALGORITHM=", algorithm.name,
        on_cpu ? " test_layers --gtest_filter=Conv2dAlgorithms.PassTheProblemOfTheEnvironment"
               : cat(library == nullptr ? "" : cat(" CONVSCOPE_CUDA_LIBRARY=", library),
                     " test_cuda --gtest_filter=Conv2dOnCuda.PassesTheProblemOfTheEnvironment"));
  }
};

}  // namespace convscope::testing
