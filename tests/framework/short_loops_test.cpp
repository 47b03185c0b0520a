// SPDX-License-Identifier: Apache-2.0
// short_loops_test.cpp: loops with few operations stay in the calling thread.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "framework/autograd/parallel_pass.h"
#include "framework/parallel.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

// Returns true if a second thread takes a chunk of the loop while the first thread waits.
bool threads_meet(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::atomic<int> threads{0};
  parallel_chunks(2, [&](std::int64_t, int) {
    ++threads;
    while (threads < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  });
  // If no second thread comes, the first thread stops waiting and takes both chunks.
  return std::chrono::steady_clock::now() < end;
}

bool stays_in_this_thread() {
  const std::thread::id here = std::this_thread::get_id();
  std::atomic<int> others{0};
  parallel_chunks(64, [&](std::int64_t, int) {
    if (std::this_thread::get_id() != here) ++others;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
  return others == 0;
}

TEST(ShortLoops, OfFewOperationsStayInTheirThreadAndOthersDoNot) {
  const testing::MachineScope scope;
  set_flops_worth_threads(kFlopsWorthThreads);
  set_num_threads(2);
  {
    const ShortLoops few(0.99 * kFlopsWorthThreads);
    EXPECT_TRUE(stays_in_this_thread());
    {
      const ShortLoops more_inside(2 * kFlopsWorthThreads);  // the outer scope has priority
      EXPECT_TRUE(stays_in_this_thread());
    }
    EXPECT_TRUE(stays_in_this_thread());
  }
  EXPECT_TRUE(threads_meet(60));
  const ShortLoops many(kFlopsWorthThreads);
  EXPECT_TRUE(threads_meet(60));
}

TEST(ShortLoops, ThreadsThatAreAwakeTakeShorterOnes) {
  const testing::MachineScope scope;
  set_flops_worth_threads(kFlopsWorthThreads);
  set_num_threads(2);
  parallel_region([&] {
    const ShortLoops some(0.2 * kFlopsWorthThreads);
    EXPECT_TRUE(threads_meet(60));
  });
  parallel_region([&] {
    const ShortLoops few(0.05 * kFlopsWorthThreads);
    EXPECT_TRUE(stays_in_this_thread());
  });
}

// Threads are awake in a region, so they share loops that are short otherwise.
TEST(ShortLoops, APassThatWokeTheThreadsTwiceKeepsThemAwakeTheNextTime) {
  const testing::MachineScope scope;
  set_flops_worth_threads(kFlopsWorthThreads);
  set_num_threads(2);
  ParallelPass pass;
  const auto in_pass = [&](std::int64_t size, int loops, const auto& check) {
    bool found = false;
    pass.run(size, [&] {
      for (int i = 0; i < loops; ++i) parallel_chunks(2, [](std::int64_t, int) {});
      const ShortLoops some(0.2 * kFlopsWorthThreads);
      found = check();
    });
    return found;
  };
  EXPECT_TRUE(in_pass(1, 2, stays_in_this_thread));
  EXPECT_TRUE(in_pass(1, 2, [] { return threads_meet(60); }));
  EXPECT_TRUE(in_pass(2, 1, stays_in_this_thread));  // another size: observed again
  EXPECT_TRUE(in_pass(2, 1, stays_in_this_thread));  // woke them once
}

}  // namespace
}  // namespace convscope
