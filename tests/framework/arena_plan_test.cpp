// SPDX-License-Identifier: Apache-2.0
// arena_plan_test.cpp: tests that two tensors of an arena share memory if and only if their
// lifetimes do not overlap.
#include "framework/memory/arena_plan.h"

#include <gtest/gtest.h>

#include "framework/memory/memory.h"
#include "framework/random.h"

namespace convscope {
namespace {

constexpr std::size_t kLine = kAlignmentBytes;

TEST(ArenaPlan, tensors_that_never_live_together_share_memory) {
  const ArenaPlan plan = plan_arena({{.bytes = 4 * kLine, .first = 0, .last = 1},
                                     {.bytes = 2 * kLine, .first = 2, .last = 3},
                                     {.bytes = 2 * kLine, .first = 2, .last = 2}});
  EXPECT_EQ(plan.bytes, 4 * kLine);
  EXPECT_NE(plan.offsets[1], plan.offsets[2]);
}

TEST(ArenaPlan, the_last_call_of_one_and_the_first_of_the_next_are_the_same_moment) {
  const ArenaPlan plan = plan_arena(
      {{.bytes = kLine, .first = 0, .last = 5}, {.bytes = kLine, .first = 5, .last = 9}});
  EXPECT_EQ(plan.bytes, 2 * kLine);
}

TEST(ArenaPlan, what_is_never_used_or_empty_takes_no_room) {
  const ArenaPlan plan =
      plan_arena({{.bytes = 100, .first = 3, .last = 2}, {.bytes = 0, .first = 0, .last = 9}});
  EXPECT_EQ(plan.bytes, 0u);
}

TEST(ArenaPlan, fills_a_gap_between_two_that_stay) {
  // c fits into the memory of b while a is alive.
  const ArenaPlan plan = plan_arena({{.bytes = 3 * kLine, .first = 0, .last = 9},
                                     {.bytes = 2 * kLine, .first = 0, .last = 4},
                                     {.bytes = 2 * kLine, .first = 5, .last = 9}});
  EXPECT_EQ(plan.bytes, 5 * kLine);
  EXPECT_EQ(plan.offsets[1], plan.offsets[2]);
}

TEST(ArenaPlan, what_is_large_is_placed_first) {
  // A planner that places tensors in the order of their start times would put the second tensor
  // above the first one, and the large tensor above both. That wastes memory.
  const ArenaPlan plan = plan_arena({{.bytes = kLine, .first = 0, .last = 1},
                                     {.bytes = kLine, .first = 1, .last = 2},
                                     {.bytes = 7 * kLine, .first = 2, .last = 3}});
  EXPECT_EQ(plan.bytes, 8 * kLine);
}

// Plans tensors with random lifetimes. If two lifetimes overlap, the tensors must not share bytes.
// Offsets must be aligned, and the size must be between the lower bound and the sum of all sizes.
TEST(ArenaPlan, random_requests_never_overlap) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<ArenaRequest> requests;
    std::size_t sum = 0;
    std::uint64_t state = seed * 7919 + 1;
    const auto next = [&](std::uint64_t below) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      return (state >> 33) % below;
    };
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(next(40));
      requests.push_back(
          {.bytes = 1 + next(5000), .first = first, .last = first + static_cast<int>(next(15))});
      sum += ScratchArena::round_up(requests.back().bytes);
    }
    const ArenaPlan plan = plan_arena(requests);
    EXPECT_GE(plan.bytes, arena_lower_bound(requests));
    EXPECT_LE(plan.bytes, sum);
    for (std::size_t a = 0; a < requests.size(); ++a) {
      EXPECT_EQ(plan.offsets[a] % kAlignmentBytes, 0u);
      EXPECT_LE(plan.offsets[a] + requests[a].bytes, plan.bytes);
      for (std::size_t b = a + 1; b < requests.size(); ++b) {
        if (requests[a].first > requests[b].last || requests[b].first > requests[a].last) continue;
        const bool apart = plan.offsets[a] + requests[a].bytes <= plan.offsets[b] ||
                           plan.offsets[b] + requests[b].bytes <= plan.offsets[a];
        EXPECT_TRUE(apart) << "seed " << seed << ": " << a << " and " << b;
      }
    }
  }
}

}  // namespace
}  // namespace convscope
