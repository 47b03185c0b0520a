// SPDX-License-Identifier: Apache-2.0
// cluster_emulation_test.cpp: tests thread-block clusters of the emulation:
// blocks that run concurrently, the cluster barrier, and reads of another block's
// shared memory (program test_emulation).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/cuda/cluster.cuh"
#include "framework/cuda/emulation/runtime.h"
#include "framework/cuda/emulation/thread_order.h"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/tma.cuh"
#include "tests/framework/cuda/on_device.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::Each;
using testing::HasSubstr;

__device__ float4 four(float value) { return make_float4(value, 2 * value, 3 * value, 4 * value); }
__device__ unsigned block_number() { return blockIdx.y * gridDim.x + blockIdx.x; }

// ---- kernels ----

// Thread t of every block gets the sum over the values of thread t in all blocks of the cluster.
__global__ void sum_over_cluster(const float* x, float4* sums) {
  auto* const mine = dynamic_shared<float4>();
  const unsigned place = block_number() * blockDim.x + threadIdx.x;
  mine[threadIdx.x] = four(x[place]);
  cluster_sync();
  float4 sum = four(0);
  for (unsigned rank = 0; rank < cluster_size(); ++rank) {
    const float4 theirs = load_from_block(mine + threadIdx.x, rank);
    sum = make_float4(sum.x + theirs.x, sum.y + theirs.y, sum.z + theirs.z, sum.w + theirs.w);
  }
  cluster_sync();
  sums[place] = sum;
}

// In each round every block reads the value of the next block. After as many rounds as blocks, each
// value is back in its first block.
__global__ void around_the_cluster(int rounds, float* out) {
  auto* const mine = dynamic_shared<float4>();
  float4 value = four(static_cast<float>(global_thread()));
  for (int round = 0; round < rounds; ++round) {
    mine[threadIdx.x] = value;
    cluster_sync();
    value = load_from_block(mine + threadIdx.x, (cluster_rank() + 1) % cluster_size());
    cluster_arrive();
    value.y += 1;  // work that needs no other block
    cluster_wait();
  }
  out[global_thread()] = value.x;
}

constexpr int kKindsOfBarriers = 7;
__device__ int thread_index() {
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  return static_cast<int>(block_number() * 1000 + cluster_rank() * 100 + thread);
}
// Stores the indices that a thread sees after each kind of barrier. A block has 16 x 4 threads.
__global__ void indices_behind_barriers(int* out) {
  auto* const phases = dynamic_shared<std::uint64_t>();
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  int* const mine = out + (block_number() * 64 + thread) * kKindsOfBarriers;
  if (thread == 0) tma::start_phases(phases, 64);
  __syncthreads();
  mine[0] = thread_index();
  cluster_sync();
  mine[1] = thread_index();
  cluster_arrive();
  mine[2] = thread_index();
  cluster_wait();
  mine[3] = thread_index();
  tma::group_sync(1, 64);
  mine[4] = thread_index();
  tma::arrive(phases);
  tma::wait_phase(phases, 0);
  mine[5] = thread_index();
  (void)__shfl_xor_sync(kAllLanes, 1, 1);
  mine[6] = thread_index();
}

// Half of the threads of a block arrive early at a barrier of the block; the others first wait for
// the cluster. So early threads of several blocks wait at their block barriers at the same time.
enum class Meets { block, named, warp };
__global__ void early_and_late(Meets meets, int* out) {
  auto* const phases = dynamic_shared<std::uint64_t>();
  auto* const values = reinterpret_cast<int*>(phases + 2);
  const unsigned thread = threadIdx.x;
  const int mine = static_cast<int>(100 * blockIdx.x + thread);
  if (thread == 0) tma::start_phases(phases, 1);
  __syncthreads();
  cluster_arrive();
  if (meets == Meets::warp) {
    // In blocks of even rank, one half of warp 0 arrives early; in blocks of odd rank, the other
    // half.
    if (thread >= 32) {
      cluster_wait();
      if (thread == 32) tma::arrive(phases);
      return;
    }
    if (thread / 16 != cluster_rank() % 2) tma::wait_phase(phases, 0);
    out[32 * blockIdx.x + thread] = __shfl_xor_sync(kAllLanes, mine, 16);
    cluster_wait();
    return;
  }
  if (thread >= 32) {
    cluster_wait();
    values[thread - 32] = mine;
  }
  if (meets == Meets::block) {
    __syncthreads();
  } else {
    tma::group_sync(3, 64);
  }
  if (thread < 32) {
    out[32 * blockIdx.x + thread] = values[thread];
    cluster_wait();
  }
}

// Block 0 computes and uses barriers of its block; the other blocks only wait for the result.
__global__ void one_block_works(int* out) {
  auto* const values = dynamic_shared<int>();
  if (cluster_rank() == 0) {
    values[threadIdx.x] = static_cast<int>(threadIdx.x);
    for (unsigned step = 1; step < blockDim.x; step *= 2) {
      __syncthreads();
      const int other = values[threadIdx.x ^ step];
      if (step == 2) {
        tma::group_sync(2, blockDim.x);
      } else {
        __syncthreads();
      }
      values[threadIdx.x] += other;
    }
  }
  cluster_sync();
  const float4 said = load_from_block(dynamic_shared<float4>(), 0);
  cluster_sync();
  out[global_thread()] = static_cast<int>(__float_as_uint(said.x));
}

// Threads 32 to 63 of each block exit before they arrive at the cluster barrier; with `arrive`,
// they arrive but exit without waiting. All threads of block 1 exit immediately. The emulation runs
// block 1 last in one order of blocks, and first in the other order.
__global__ void some_leave(bool arrive, float* out) {
  auto* const mine = dynamic_shared<float4>();
  if (cluster_rank() == 1) return;
  if (threadIdx.x >= 32) {
    if (arrive) cluster_arrive();
    return;
  }
  mine[threadIdx.x] = four(static_cast<float>(cluster_rank()));
  cluster_sync();
  out[global_thread()] = load_from_block(mine + threadIdx.x, 2 - cluster_rank()).x;
  cluster_sync();
}

__global__ void first_warp_arrives_and_leaves(int) {
  if (threadIdx.x < 32) cluster_arrive();
}

__global__ void turns_of_a_cluster(int* turns, int* out) {
  out[global_thread()] = (*turns)++;
  cluster_arrive();
  cluster_wait();
}

__global__ void fresh_shared(float* out) {
  auto* const mine = dynamic_shared<float>();
  out[blockIdx.x] = mine[0];
  mine[0] = 1;
}

// ---- kernels with mistakes ----

enum class Wrong {
  nothing,
  no_arrival,
  two_arrivals,
  beyond_the_cluster,
  behind_the_memory,
  before_the_memory,
  between_places,
  before_a_barrier,
  no_last_barrier,
  phases_written,
  stays_away,
  traps,
  throws,
};
// Block 1 of each cluster makes the mistake `wrong`. If one wrong thread is enough, it is thread 5;
// otherwise all threads of the block take part.
__global__ void goes_wrong(Wrong wrong, float* out) {
  auto* const mine = dynamic_shared<float4>();  // 32 values, then an mbarrier
  auto* const phases = reinterpret_cast<std::uint64_t*>(mine + 32);
  const bool here = cluster_rank() == 1;
  const bool one = here && threadIdx.x == 5;
  if (threadIdx.x == 0) tma::start_phases(phases, 1);
  mine[threadIdx.x] = four(1);
  const auto does = [&](Wrong what) { return one && wrong == what; };
  if (does(Wrong::no_arrival)) cluster_wait();
  if (does(Wrong::before_a_barrier)) out[0] = load_from_block(mine, 0).x;
  cluster_sync();
  if (here && wrong == Wrong::stays_away) {
    if (threadIdx.x < 8) return;
    __syncthreads();
  }
  if (does(Wrong::two_arrivals)) {
    cluster_arrive();
    cluster_arrive();
  }
  if (does(Wrong::beyond_the_cluster)) out[0] = load_from_block(mine, cluster_size()).x;
  if (does(Wrong::behind_the_memory)) out[0] = load_from_block(mine + 33, 0).x;
  if (does(Wrong::before_the_memory)) out[0] = load_from_block(mine - 1, 0).x;
  if (does(Wrong::between_places)) {
    const auto* const place = reinterpret_cast<const float*>(mine) + 1;
    out[0] = load_from_block(reinterpret_cast<const float4*>(place), 0).x;
  }
  if (does(Wrong::phases_written)) *phases = 7;
  if (does(Wrong::traps)) __trap();
  if (does(Wrong::throws)) throw std::out_of_range("thread 5 of block 1");
  if (wrong != Wrong::no_last_barrier) return cluster_sync();
  // Block 0 exits at once. Block 1 runs after it and reads the shared memory of block 0.
  if (here) {
    __syncthreads();
    if (one) out[0] = load_from_block(mine, 0).x;
  }
}
constexpr std::size_t kBytesOfWrong = 32 * sizeof(float4) + 16;

void run_wrong(Wrong wrong, unsigned clusters = 1) {
  OnDevice<float> out(1);
  launch(
      goes_wrong,
      {.grid = dim3(2 * clusters), .block = dim3(32), .shared_bytes = kBytesOfWrong, .cluster = 2},
      wrong, out.data());
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void write_past_own_shared(int) {
  auto* const mine = dynamic_shared<float>();
  cluster_sync();
  if (cluster_rank() == 1) mine[8] = 1;
}
#endif

// ---- tests ----

// Runs `test` twice: with threads and blocks in ascending and in descending order.
void in_both_orders(const auto& test) {
  for (const auto order :
       {emulation::ThreadOrder::first_first, emulation::ThreadOrder::last_first}) {
    const bool reverse = order == emulation::ThreadOrder::last_first;
    SCOPED_TRACE(reverse ? "the last thread begins" : "the first thread begins");
    const emulation::ThreadOrder before = emulation::set_thread_order(order);
    test(reverse);
    emulation::set_thread_order(before);
  }
}

TEST(EmulatedCluster, SumsOverTheBlocksOfEachCluster) {
  for (const unsigned cluster : {1u, 2u, 3u, 4u, 8u}) {
    const unsigned threads = 48;
    const dim3 grid(3 * cluster, 2);
    std::vector<float> x(grid.x * grid.y * threads);
    std::iota(x.begin(), x.end(), 1.0f);
    in_both_orders([&](bool) {
      const OnDevice<float> from(x);
      OnDevice<float4> sums(x.size());
      launch(sum_over_cluster,
             {.grid = grid,
              .block = dim3(threads),
              .shared_bytes = threads * sizeof(float4),
              .cluster = cluster},
             from.data(), sums.data());
      const auto values = sums.values();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t first = i / threads / cluster * cluster;
        float sum = 0;
        for (std::size_t b = first; b < first + cluster; ++b) sum += x[b * threads + i % threads];
        ASSERT_EQ(values[i].x, sum) << "cluster of " << cluster << ", place " << i;
        ASSERT_EQ(values[i].w, 4 * sum) << "cluster of " << cluster << ", place " << i;
      }
    });
  }
}

TEST(EmulatedCluster, AllThreadsOfTheLargestClusterGoOnTogether) {
  const std::vector<float> x(8 * 1024, 1.0f);
  const OnDevice<float> from(x);
  OnDevice<float4> sums(x.size());
  launch(
      sum_over_cluster,
      {.grid = dim3(8), .block = dim3(1024), .shared_bytes = 1024 * sizeof(float4), .cluster = 8},
      from.data(), sums.data());
  for (const float4 sum : sums.values()) ASSERT_EQ(sum.x, 8);
}

TEST(EmulatedCluster, ManyRoundsOfItsBarrierStandBehindEachOther) {
  in_both_orders([](bool) {
    for (const int rounds : {1, 4}) {
      OnDevice<float> out(8 * 32);
      launch(
          around_the_cluster,
          {.grid = dim3(8), .block = dim3(32), .shared_bytes = 32 * sizeof(float4), .cluster = 4},
          rounds, out.data());
      const auto values = out.values();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t block = i / 32;
        const std::size_t from = block / 4 * 4 + (block + static_cast<std::size_t>(rounds)) % 4;
        ASSERT_EQ(values[i], static_cast<float>(from * 32 + i % 32)) << rounds << " rounds";
      }
    }
  });
}

TEST(EmulatedCluster, ThreadsKnowThemselvesBehindEachBarrier) {
  in_both_orders([](bool) {
    OnDevice<int> out(8 * 64 * kKindsOfBarriers);
    launch(indices_behind_barriers,
           {.grid = dim3(4, 2), .block = dim3(16, 4), .shared_bytes = 16, .cluster = 4},
           out.data());
    const auto values = out.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t thread = i / kKindsOfBarriers;
      const std::size_t block = thread / 64;
      ASSERT_EQ(values[i], static_cast<int>(block * 1000 + block % 4 * 100 + thread % 64))
          << "barrier " << i % kKindsOfBarriers << ", thread " << thread;
    }
  });
}

TEST(EmulatedCluster, BarriersOfABlockAreItsOwn) {
  for (const Meets meets : {Meets::block, Meets::named, Meets::warp}) {
    in_both_orders([&](bool) {
      OnDevice<int> out(4 * 32);
      launch(early_and_late,
             {.grid = dim3(4), .block = dim3(64), .shared_bytes = 16 + 32 * 4, .cluster = 4}, meets,
             out.data());
      const auto values = out.values();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const std::size_t from = meets == Meets::warp ? (i % 32) ^ 16u : i % 32 + 32;
        ASSERT_EQ(values[i], static_cast<int>(i / 32 * 100 + from))
            << "meets " << static_cast<int>(meets) << ", place " << i;
      }
    });
  }
}

TEST(EmulatedCluster, OneBlockWorksWhileTheOthersWait) {
  in_both_orders([](bool) {
    OnDevice<int> out(4 * 64);
    launch(one_block_works,
           {.grid = dim3(4), .block = dim3(64), .shared_bytes = 64 * sizeof(int), .cluster = 2},
           out.data());
    EXPECT_THAT(out.values(), Each(64 * 63 / 2));
  });
}

TEST(EmulatedCluster, ThreadsThatHaveLeftCountAsArrived) {
  for (const bool arrive : {false, true}) {
    in_both_orders([&](bool) {
      OnDevice<float> out(3 * 64);
      launch(
          some_leave,
          {.grid = dim3(3), .block = dim3(64), .shared_bytes = 32 * sizeof(float4), .cluster = 3},
          arrive, out.data());
      const auto values = out.values();
      for (std::size_t i = 0; i < 32; ++i) {
        ASSERT_EQ(values[i], 2);
        ASSERT_EQ(values[2 * 64 + i], 0);
      }
    });
  }
  // The failed launch does not affect later clusters.
  in_both_orders([](bool) {
    launch(first_warp_arrives_and_leaves, {.grid = dim3(6), .block = dim3(64), .cluster = 2}, 0);
  });
}

TEST(EmulatedCluster, TheFirstBlockBeginsOrTheLast) {
  in_both_orders([](bool reverse) {
    const OnDevice<int> turns(std::vector<int>{0});
    OnDevice<int> out(4 * 32);
    launch(turns_of_a_cluster, {.grid = dim3(4), .block = dim3(32), .cluster = 4}, turns.data(),
           out.data());
    const auto values = out.values();
    for (int i = 0; i < 4 * 32; ++i) {
      ASSERT_EQ(values[static_cast<std::size_t>(i)], reverse ? 4 * 32 - 1 - i : i);
    }
  });
}

TEST(EmulatedCluster, SharedMemoryIsEachBlocksOwnAndBeginsAsNaN) {
  OnDevice<float> out(8);
  launch(fresh_shared, {.grid = dim3(8), .block = dim3(1), .shared_bytes = 4, .cluster = 4},
         out.data());
  EXPECT_THAT(out.values(), Each(testing::IsNan()));
}

TEST(EmulatedCluster, ACapturedLaunchKeepsItsClusters) {
  std::vector<float> x(64);
  std::iota(x.begin(), x.end(), 0.0f);
  const OnDevice<float> from(x);
  OnDevice<float4> sums(64);
  const Recording recording([&] {
    launch(sum_over_cluster,
           {.grid = dim3(2), .block = dim3(32), .shared_bytes = 32 * sizeof(float4), .cluster = 2},
           from.data(), sums.data());
  });
  recording.replay();
  EXPECT_EQ(sums.values()[5].x, 5 + 37);
}

// ---- errors ----

TEST(EmulatedCluster, RefusesClustersThatADeviceRefuses) {
  OnDevice<float> out(1);
  const auto run = [&](unsigned blocks, unsigned cluster) {
    launch(fresh_shared,
           {.grid = dim3(blocks), .block = dim3(1), .shared_bytes = 4, .cluster = cluster},
           out.data());
  };
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a cluster of 1 to 8 blocks, got 16", run(16, 16));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a cluster of 1 to 8 blocks, got 0", run(16, 0));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected a multiple of 4 blocks along x", run(6, 4));
}

TEST(EmulatedCluster, WrongUsesOfItsBarrierAreErrors) {
  in_both_orders([](bool) {
    EXPECT_ERROR(ErrorKind::kRun, "thread 5: waits at the barrier of its cluster, but has not",
                 run_wrong(Wrong::no_arrival));
    EXPECT_ERROR(ErrorKind::kRun, "thread 5: arrives at the barrier of its cluster again, without",
                 run_wrong(Wrong::two_arrivals));
    run_wrong(Wrong::nothing);
  });
}

TEST(EmulatedCluster, WrongReadsOfOtherBlocksAreErrors) {
  in_both_orders([](bool) {
    EXPECT_ERROR(ErrorKind::kRun, "thread 5: load_from_block reads block 2 of a cluster of 2",
                 run_wrong(Wrong::beyond_the_cluster));
    EXPECT_ERROR(ErrorKind::kRun,
                 "reads 16 bytes from byte 528 on, outside the 528 bytes of dynamic shared memory",
                 run_wrong(Wrong::behind_the_memory));
    EXPECT_ERROR(ErrorKind::kRun, "reads 16 bytes from byte -16 on, outside the 528 bytes",
                 run_wrong(Wrong::before_the_memory));
    EXPECT_ERROR(ErrorKind::kRun, "reads from byte 4 on, which is not a multiple of 16",
                 run_wrong(Wrong::between_places));
    EXPECT_ERROR(ErrorKind::kRun, "reads block 0 of the cluster, which may not have started",
                 run_wrong(Wrong::before_a_barrier));
    EXPECT_ERROR(ErrorKind::kRun, "reads block 0 of the cluster, whose threads have all exited",
                 run_wrong(Wrong::no_last_barrier));
    run_wrong(Wrong::nothing);
  });
}

TEST(EmulatedCluster, ErrorsNameTheBlockOfTheCluster) {
  in_both_orders([](bool reverse) {  // the cluster that runs first fails
    EXPECT_ERROR(
        ErrorKind::kRun,
        cat("block (", reverse ? 3 : 1,
            ",0,0) of grid 4x1x1, block 1 of its cluster of 2, 32 threads: thread 5: a thread "
            "called __trap()"),
        run_wrong(Wrong::traps, 2));
    EXPECT_ERROR(ErrorKind::kRun,
                 "block (1,0,0) of grid 2x1x1, block 1 of its cluster of 2, 32 threads: something "
                 "else was written to the address of a barrier",
                 run_wrong(Wrong::phases_written));
    EXPECT_ERROR(
        ErrorKind::kRun,
        cat("blocks ", reverse ? "(2,0,0) to (3,0,0)" : "(0,0,0) to (1,0,0)",
            " of grid 4x1x1, one cluster, 32 threads each: deadlock: "
            "block 0 of the cluster: [0 to 31] wait in cluster_wait; block 1 of the cluster: "
            "[8 to 31] wait at __syncthreads; [0 to 7] have left the kernel"),
        run_wrong(Wrong::stays_away, 2));
    EXPECT_THROW(run_wrong(Wrong::throws), std::out_of_range);
    run_wrong(Wrong::nothing, 2);
  });
}

#if defined(__SANITIZE_ADDRESS__)
TEST(EmulatedClusterDeathTest, TheAddressSanitizerSeesABlockPastItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(launch(write_past_own_shared,
                      {.grid = dim3(2), .block = dim3(1), .shared_bytes = 32, .cluster = 2}, 0),
               "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace convscope
