// SPDX-License-Identifier: Apache-2.0
// parallel_test.cpp: parallel loops: every index once, exceptions, nested loops.
#include "framework/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "framework/check.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

TEST(Parallel, EveryIndexIsVisitedOnce) {
  const testing::MachineScope scope;
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_EQ(num_threads(), threads);
    for (std::int64_t count : {0, 1, 7, 64, 1000}) {
      for (std::int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(count));
        parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
          EXPECT_LE(end - begin, grain);
          for (std::int64_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
        });
        for (const std::atomic<int>& n : visits) EXPECT_EQ(n, 1);
      }
    }
  }
}

TEST(Parallel, ThreadNumbersAreWithinBounds) {
  const testing::MachineScope scope;
  set_num_threads(3);
  std::atomic<int> wrong{0};
  parallel_chunks(200, [&](std::int64_t, int thread) { wrong += thread < 0 || thread >= 3; });
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, AnExceptionReachesTheCallerAndTheNextLoopWorks) {
  const testing::MachineScope scope;
  for (int threads : {1, 2, 4}) {
    set_num_threads(threads);
    EXPECT_ERROR(ErrorKind::kInvalid, "[test] chunk 13",
                 parallel_chunks(100, [](std::int64_t chunk, int) {
                   if (chunk == 13) fail("test", "chunk 13");
                 }));
    std::atomic<int> visits{0};
    parallel_chunks(100, [&](std::int64_t, int) { ++visits; });
    EXPECT_EQ(visits, 100);
  }
}

TEST(Parallel, ALoopInsideALoopRunsInItsThread) {
  const testing::MachineScope scope;
  set_num_threads(4);
  std::atomic<int> visits{0};
  std::atomic<int> wrong{0};
  parallel_chunks(8, [&](std::int64_t, int) {
    parallel_chunks(5, [&](std::int64_t, int thread) {
      ++visits;
      wrong += thread != 0;
    });
  });
  EXPECT_EQ(visits, 40);
  EXPECT_EQ(wrong, 0);
}

TEST(Parallel, SumsInChunkOrderHaveTheSameBitsForAnyNumberOfThreads) {
  const testing::MachineScope scope;
  const Tensor x = testing::normal({100000}, DType::f32);
  const auto total = [&] {
    float parts[100] = {};
    parallel_for(x.numel(), 1000, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) parts[begin / 1000] += x.data<float>()[i];
    });
    float sum = 0;
    for (float part : parts) sum += part;
    return sum;
  };
  set_num_threads(1);
  const float one = total();
  for (int threads : {2, 3, 7}) {
    set_num_threads(threads);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(total(), one);
  }
}

// The parallel region has many short loops, some with fewer chunks than threads, and serial code
// between the loops.
TEST(Parallel, EveryLoopOfARegionVisitsEveryIndexOnce) {
  const testing::MachineScope scope;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    std::vector<int> visits(37, 0);
    std::int64_t serial = 0;
    parallel_region([&] {
      for (int loop = 0; loop < 500; ++loop) {
        const std::int64_t chunks = 1 + loop % 37;
        parallel_chunks(chunks, [&](std::int64_t chunk, int thread) {
          EXPECT_LT(thread, std::min<std::int64_t>(threads, chunks));
          ++visits[static_cast<std::size_t>(chunk)];
        });
        serial += visits[0];  // sees the writes of the loop's threads
      }
    });
    EXPECT_EQ(serial, 500 * 501 / 2);
    for (std::size_t i = 0; i < visits.size(); ++i) {
      int expected = 0;
      for (int loop = 0; loop < 500; ++loop) expected += loop % 37 >= static_cast<int>(i) ? 1 : 0;
      EXPECT_EQ(visits[i], expected) << i;
    }
  }
}

TEST(Parallel, AnExceptionLeavesARegionAndTheNextRegionWorks) {
  const testing::MachineScope scope;
  set_num_threads(3);
  const auto failing = [] {
    parallel_region([] {
      parallel_chunks(8, [](std::int64_t chunk, int) {
        if (chunk == 5) fail("test", "chunk 5");
      });
    });
  };
  EXPECT_ERROR(ErrorKind::kInvalid, "chunk 5", failing());
  EXPECT_ERROR(ErrorKind::kInvalid, "outside of a loop",
               parallel_region([] { fail("test", "outside of a loop"); }));
  std::atomic<int> count{0};
  parallel_region([&] { parallel_chunks(8, [&](std::int64_t, int) { ++count; }); });
  EXPECT_EQ(count.load(), 8);
}

TEST(Parallel, RefusesImpossibleThreadCounts) {
  const testing::MachineScope scope;
  EXPECT_ERROR(ErrorKind::kInvalid, "expected 0 to 1024 threads, got -1", set_num_threads(-1));
  EXPECT_ERROR(ErrorKind::kInvalid, "got 5000", set_num_threads(5000));
  set_num_threads(0);
  EXPECT_GE(num_threads(), 1);
}

}  // namespace
}  // namespace convscope
