// SPDX-License-Identifier: Apache-2.0
// isa_checks.h: tests an algorithm with all instruction sets and several numbers of threads.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tests/support/numerics.h"

namespace convscope::testing {

// Compares all directions with the reference (numerics.h) on each instruction set. The bits of a
// result must not depend on the number of threads. The caller needs a MachineScope.
inline void check_on_each_isa(const Conv2dAlgorithm& algorithm, const Conv2dProblem& problem,
                              Tier tier, const std::vector<int>& threads = {1}) {
  ConvolutionCase one(problem, tier);
  for (const Direction direction : kDirections) {
    for (int i = 0; i < kIsaCount; ++i) {
      if (!supports_isa(static_cast<Isa>(i))) continue;
      set_isa(static_cast<Isa>(i));
      std::vector<float> bits;
      for (const int count : threads) {
        set_num_threads(count);
        std::vector<float> result;
        ASSERT_EQ(one.check(algorithm, direction, &result), "");
        if (bits.empty()) bits = result;
        ASSERT_EQ(std::memcmp(bits.data(), result.data(), bits.size() * sizeof(float)), 0)
            << problem.text() << " with " << count << " threads, " << name_of(direction);
      }
    }
  }
}

}  // namespace convscope::testing
