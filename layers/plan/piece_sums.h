// SPDX-License-Identifier: Apache-2.0
// piece_sums.h: gradients as sums of partial results. Each group of thread blocks of a kernel
// writes one partial gradient (a piece), and a later kernel adds the pieces. On a GPU the last
// kernel of the backward pass can add them, so that the addition needs no launch
// (Emitter::hand_over).
#pragma once

#include <cstdint>

namespace convscope {

// Adds pieces: to[i] (+)= sum over p of pieces[p][begin + i], for all i up to the begin of the next
// target.
struct PieceSums {
  static constexpr int kMaxTargets = 4;
  struct Target {
    float* to = nullptr;  // null: not needed
    std::int64_t begin = 0;
    bool accumulate = false;
  };
  const float* pieces = nullptr;  // [count][floats]
  std::int64_t floats = 0;
  int count = 0;               // 0: nothing to add
  Target target[kMaxTargets];  // sorted by begin; unused ones begin at `floats`
};

}  // namespace convscope
