// SPDX-License-Identifier: Apache-2.0
// arena_plan.cpp: assigns tensors with known lifetimes to offsets in one block of memory. Tensors
// that are never alive at the same time share bytes.
#include "framework/memory/arena_plan.h"

#include <algorithm>
#include <numeric>

#include "framework/memory/memory.h"

namespace convscope {
namespace {

bool lives(const ArenaRequest& request) {
  return request.last >= request.first && request.bytes > 0;
}

bool meet(const ArenaRequest& a, const ArenaRequest& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

ArenaPlan plan_arena(const std::vector<ArenaRequest>& requests) {
  std::vector<std::size_t> order(requests.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return requests[a].bytes > requests[b].bytes;
  });
  ArenaPlan plan{.offsets = std::vector<std::size_t>(requests.size(), 0), .bytes = 0};
  std::vector<std::size_t> placed;  // by offset
  for (std::size_t i : order) {
    if (!lives(requests[i])) continue;
    const std::size_t bytes = ScratchArena::round_up(requests[i].bytes);
    std::size_t at = 0;
    for (std::size_t other : placed) {
      if (!meet(requests[i], requests[other])) continue;
      if (plan.offsets[other] >= at + bytes) break;  // the gap before it is wide enough
      at = std::max(at, plan.offsets[other] + ScratchArena::round_up(requests[other].bytes));
    }
    plan.offsets[i] = at;
    plan.bytes = std::max(plan.bytes, at + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) {
                                     return plan.offsets[a] < plan.offsets[b];
                                   }),
                  i);
  }
  return plan;
}

std::size_t arena_lower_bound(const std::vector<ArenaRequest>& requests) {
  std::size_t most = 0;
  for (const ArenaRequest& moment : requests) {  // the peak begins where a request begins
    if (!lives(moment)) continue;
    std::size_t sum = 0;
    for (const ArenaRequest& request : requests) {
      if (lives(request) && request.first <= moment.first && moment.first <= request.last) {
        sum += ScratchArena::round_up(request.bytes);
      }
    }
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace convscope
