// SPDX-License-Identifier: Apache-2.0
// memory_test.cpp: the allocator: alignment, counting, reuse and peaks.
#include "framework/memory/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "framework/tensor.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

const Device kCpu{};

bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kAlignmentBytes == 0;
}

TEST(Memory, BlocksAreAlignedAndCountedAsAskedFor) {
  const MemoryStats before = memory_stats(kCpu);
  for (const std::size_t bytes : {1, 63, 64, 65, 513, 1000, 4097, 100000, 1 << 22}) {
    void* block = allocate(kCpu, bytes);
    EXPECT_TRUE(aligned(block)) << bytes;
    std::memset(block, 0xff, bytes);
    EXPECT_EQ(memory_stats(kCpu).live_bytes - before.live_bytes, static_cast<std::int64_t>(bytes));
    deallocate(kCpu, block, bytes);
    EXPECT_EQ(memory_stats(kCpu).live_bytes, before.live_bytes);
  }
}

TEST(Memory, AFreedBlockIsHandedOutAgainWithoutAskingTheSystem) {
  void* first = allocate(kCpu, 123456);
  deallocate(kCpu, first, 123456);
  const MemoryStats before = memory_stats(kCpu);
  void* second = allocate(kCpu, 123400);  // the same size class
  EXPECT_EQ(second, first);
  EXPECT_EQ(memory_stats(kCpu).system_allocations, before.system_allocations);
  EXPECT_EQ(memory_stats(kCpu).allocations, before.allocations + 1);
  EXPECT_LT(memory_stats(kCpu).cached_bytes, before.cached_bytes);
  deallocate(kCpu, second, 123400);
}

TEST(Memory, ARepeatedStepOfTensorsAsksTheSystemForNothing) {
  const auto step = [] {
    std::vector<Tensor> alive;
    for (std::int64_t n = 1; n < 50; ++n) alive.push_back(Tensor::zeros({n, 17 * n}));
  };
  step();
  const std::int64_t before = memory_stats(kCpu).system_allocations;
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(memory_stats(kCpu).system_allocations, before);
}

TEST(Memory, ABlockIsAtMostAnEighthLargerThanAskedFor) {
  release_cached(kCpu);
  for (std::size_t bytes = 64; bytes < 100000000; bytes = bytes * 9 / 8 + 1) {
    deallocate(kCpu, allocate(kCpu, bytes), bytes);
    const auto held = static_cast<double>(memory_stats(kCpu).cached_bytes);
    EXPECT_LE(held, 1.125 * static_cast<double>(bytes) + 64) << bytes;
    EXPECT_GE(held, static_cast<double>(bytes)) << bytes;
    release_cached(kCpu);
    EXPECT_EQ(memory_stats(kCpu).cached_bytes, 0);
  }
}

// ctest runs the tests in this mode (tests/CMakeLists.txt).
TEST(Memory, BeginsAsNaNWhereTheTestsAskForIt) {
  if (std::getenv("CONVSCOPE_MEMORY_NAN") == nullptr)
    GTEST_SKIP() << "CONVSCOPE_MEMORY_NAN is not set";
  for (int i = 0; i < 2; ++i) {  // the second time from the cache
    const Tensor x = Tensor::empty({1000});
    for (std::int64_t j = 0; j < x.numel(); ++j) ASSERT_TRUE(std::isnan(x.at(j))) << j;
    x.zero();
  }
}

TEST(Memory, PeaksAreRememberedUntilTheyAreReset) {
  reset_peak(kCpu);
  const std::int64_t live = memory_stats(kCpu).live_bytes;
  {
    const Tensor a = Tensor::empty({1000});
    const Workspace workspace(kCpu, 5000);
    EXPECT_EQ(memory_stats(kCpu).workspace_bytes, 5000);
    EXPECT_EQ(memory_stats(kCpu).peak_bytes, live + 9000);
  }
  const MemoryStats after = memory_stats(kCpu);
  EXPECT_EQ(after.live_bytes, live);
  EXPECT_EQ(after.workspace_bytes, 0);
  EXPECT_EQ(after.peak_bytes, live + 9000);
  EXPECT_EQ(after.workspace_peak_bytes, 5000);
  reset_peak(kCpu);
  EXPECT_EQ(memory_stats(kCpu).peak_bytes, live);
  EXPECT_EQ(memory_stats(kCpu).workspace_peak_bytes, 0);
}

TEST(Memory, NothingIsANullPointer) {
  const MemoryStats before = memory_stats(kCpu);
  void* none = allocate(kCpu, 0);
  EXPECT_EQ(none, nullptr);
  deallocate(kCpu, none, 0);
  EXPECT_EQ(memory_stats(kCpu).allocations, before.allocations);
}

TEST(Memory, OutOfMemoryIsOneSentenceAndChangesNothing) {
  const MemoryStats before = memory_stats(kCpu);
  EXPECT_ERROR(ErrorKind::kRun, "[memory] out of memory on cpu: expected space for ",
               allocate(kCpu, std::size_t{1} << 59));
  EXPECT_ERROR(ErrorKind::kRun, "use a smaller batch", allocate(kCpu, ~std::size_t{0}));
  EXPECT_EQ(memory_stats(kCpu).live_bytes, before.live_bytes);
  void* block = allocate(kCpu, 100);  // the allocator still works
  deallocate(kCpu, block, 100);
}

TEST(Memory, OutOfMemoryNamesTheTensorThatFoundNoRoomAndSmallerOnesGoOn) {
  release_cached(kCpu);
  const std::int64_t limit = 2 * memory_stats(kCpu).live_bytes + (1 << 20);
  set_memory_limit(kCpu, limit);
  const std::int64_t live = memory_stats(kCpu).live_bytes;
  EXPECT_ERROR(ErrorKind::kRun, "a tensor f32[" + std::to_string(limit) + ",2] of ",
               Tensor::empty({limit, 2}));
  EXPECT_ERROR(ErrorKind::kRun, " bytes are in use (peak ", Tensor::empty({limit, 2}));
  EXPECT_ERROR(ErrorKind::kRun, "expected space for workspace of ",
               Workspace(kCpu, static_cast<std::size_t>(2 * limit)));
  EXPECT_EQ(memory_stats(kCpu).live_bytes, live);
  // The cache is released for new requests.
  for (const std::int64_t size : {100000, 120000, 140000}) EXPECT_NO_THROW(Tensor::empty({size}));
  set_memory_limit(kCpu, 0);
  EXPECT_NO_THROW(Tensor::empty({limit, 2}));
}

TEST(Memory, ThreadsMayAllocateAtTheSameTime) {
  const std::int64_t live = memory_stats(kCpu).live_bytes;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (std::size_t i = 0; i < 500; ++i) {
        const std::size_t bytes = 64 + 97 * ((i + static_cast<std::size_t>(t)) % 40);
        auto* block = static_cast<unsigned char*>(allocate(kCpu, bytes));
        std::memset(block, t, bytes);
        ASSERT_EQ(block[bytes - 1], t);
        deallocate(kCpu, block, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory_stats(kCpu).live_bytes, live);
}

TEST(SmallObjects, LiveOnesNeverOverlap) {
  std::set<void*> live;
  std::vector<std::pair<void*, std::size_t>> objects;
  for (std::size_t bytes = 0; bytes < 1500; bytes += 13) {
    void* object = allocate_small(bytes);
    std::memset(object, 1, bytes);
    EXPECT_TRUE(live.insert(object).second);
    objects.emplace_back(object, bytes);
  }
  for (const auto& [object, bytes] : objects) deallocate_small(object, bytes);
}

TEST(ScratchArena, HandsOutAlignedPiecesUntilTheBlockIsUsedUp) {
  const Workspace workspace(kCpu, 256);
  ScratchArena arena(workspace.data(), workspace.bytes());
  auto* a = arena.take<float>(3);   // 12 bytes: one line of 64
  auto* b = arena.take<double>(9);  // 72 bytes: two lines
  ASSERT_NE(b, nullptr);
  EXPECT_TRUE(aligned(b));
  EXPECT_EQ(reinterpret_cast<char*>(b) - reinterpret_cast<char*>(a), 64);
  EXPECT_EQ(arena.take<char>(65), nullptr);
  EXPECT_NE(arena.take<char>(64), nullptr);
  EXPECT_EQ(arena.take<char>(1), nullptr);
}

}  // namespace
}  // namespace convscope
