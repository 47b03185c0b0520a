// SPDX-License-Identifier: Apache-2.0
// nchw16c_support.h: which groups algorithms of NCHW16c images support that add whole blocks of 16
// channels.
#pragma once

#include "layers/conv2d/problem.h"
#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/algorithm.h"

namespace convscope {

// Refuses groups that share a block of 16 channels.
inline Support groups_of_blocks(const Conv2dProblem& z) {
  if (z.groups == 1 ||
      (z.c_per_group() % kChannelBlock == 0 && z.k_per_group() % kChannelBlock == 0)) {
    return {};
  }
  return Support::no(cat("expects groups of a multiple of 16 channels in layout nchw16c, got ",
                         z.groups, " groups of ", z.c_per_group(), " and ", z.k_per_group()));
}

}  // namespace convscope
