// SPDX-License-Identifier: Apache-2.0
// arena_plan.h: places tensors whose lifetimes are known in one block of memory, so that those that
// never live at the same moment share bytes.
//
// Finding the smallest block is NP-hard (it is dynamic storage allocation). The greedy rule used
// here, the largest tensor first, each at the lowest gap that is free during its whole life, comes
// within a few percent of the lower bound on networks.
// Source   Y. Pisarchyk, J. Lee: Efficient Memory Management for Deep Neural Net Inference, 2020,
//          arXiv 2001.03288 ("greedy by size")
#pragma once

#include <cstddef>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Needed in calls first <= call <= last; last < first: never needed.
struct ArenaRequest {
  std::size_t bytes = 0;
  int first = 0;
  int last = -1;
};

struct ArenaPlan {
  std::vector<std::size_t> offsets;  // of each request, multiples of kAlignmentBytes
  std::size_t bytes = 0;             // of the whole block
};
CONVSCOPE_API ArenaPlan plan_arena(const std::vector<ArenaRequest>& requests);

// Sum of what is alive in the call where it is largest, each request rounded up: no plan can do
// with less.
CONVSCOPE_API std::size_t arena_lower_bound(const std::vector<ArenaRequest>& requests);

}  // namespace convscope
