// SPDX-License-Identifier: Apache-2.0
// ladders.h: checks that ladders must pass, whether their algorithms run on a CPU or on a GPU.
#pragma once

#include <gtest/gtest.h>

#include <set>

#include "layers/conv2d/ladder.h"

namespace convscope::testing {

inline void check_rungs(DeviceType type) {
  for (const auto& [name, ladder] : conv2d_ladders(type).entries()) {
    SCOPED_TRACE(name);
    EXPECT_EQ(ladder.device, type);
    EXPECT_GE(ladder.rungs.size(), 2u);
    const Conv2dProblem problem = Conv2dProblem::parse(ladder.problem);
    std::set<std::string> labels;
    for (const Conv2dRung& rung : ladder.rungs) {
      EXPECT_TRUE(labels.insert(label_of(rung)).second) << label_of(rung) << " stands there twice";
      const std::string_view sentence = rung.sentence;
      EXPECT_GT(sentence.size(), 20u) << label_of(rung);
      EXPECT_FALSE(sentence.ends_with('.')) << sentence;
      const Conv2dAlgorithm* algorithm = conv2d_algorithms(type).find(rung.algorithm);
      ASSERT_NE(algorithm, nullptr) << "no algorithm is named " << rung.algorithm;
      Conv2dProblem here = problem;
      here.math = rung.math;
      EXPECT_EQ(support_of(*algorithm, here, Direction::forward).reason, "") << label_of(rung);
      if (rung.prepare_each_call) {
        EXPECT_NE(algorithm->prepare_weights, nullptr) << rung.algorithm << " prepares no weights";
      }
    }
  }
}

}  // namespace convscope::testing
