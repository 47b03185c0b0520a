// SPDX-License-Identifier: Apache-2.0
// arena_plan.h: assigns tensors with known lifetimes to offsets in one block of memory. Tensors
// that are never alive at the same time share bytes.
//
// Finding the smallest block is NP-hard (dynamic storage allocation). This greedy rule places the
// tensors in order of decreasing size, each in the lowest gap that is free during the whole
// lifetime of the tensor. On networks the result is within a few percent of the lower bound.
// Source   Y. Pisarchyk, J. Lee: Efficient Memory Management for Deep Neural Net Inference, 2020,
//          arXiv 2001.03288 ("greedy by size")
#pragma once

#include <cstddef>
#include <vector>

#include "framework/export.h"

namespace convscope {

// A tensor that is needed in the calls first <= call <= last. A tensor with last < first is never
// needed.
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

// Returns a lower bound for the size of the block: the maximum over all calls of the bytes that are
// live in the call, each request rounded up.
CONVSCOPE_API std::size_t arena_lower_bound(const std::vector<ArenaRequest>& requests);

}  // namespace convscope
