// SPDX-License-Identifier: Apache-2.0
// piece_sums.h: gradients as sums over pieces: each group of blocks of a kernel has left one piece,
// somebody adds them up. On a GPU the kernel that ends the backward can take that over, so that it
// costs no launch of its own (PlanBuilder::hand_over).
#pragma once

#include <cstdint>

namespace convscope {

// to[i] (+)= sum over p of pieces[p][begin + i], up to the next target's begin.
struct PieceSums {
  static constexpr int kMostTargets = 4;
  struct Target {
    float* to = nullptr;  // null: nobody wants these
    std::int64_t begin = 0;
    bool accumulate = false;
  };
  const float* pieces = nullptr;  // [count][floats]
  std::int64_t floats = 0;
  int count = 0;                // 0: nothing is to be added
  Target target[kMostTargets];  // by their begin; those behind the last begin at `floats`
};

}  // namespace convscope
