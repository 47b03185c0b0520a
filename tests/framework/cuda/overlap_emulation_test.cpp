// SPDX-License-Identifier: Apache-2.0
// overlap_emulation_test.cpp: tests kernels that start before the previous kernel has ended, as
// early as permitted (framework/cuda/emulation/overlap.h; program test_emulation).
#include <gtest/gtest.h>

#include <vector>

#include "framework/cuda/cluster.cuh"
#include "framework/cuda/emulation/overlap.h"
#include "framework/cuda/launch.cuh"
#include "tests/framework/cuda/on_device.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

// The order of two actions of a kernel: it waits for the previous kernel, and it allows the next
// kernel to start.
enum class Order { waits_first, starts_next_first, never_waits, never_starts_next };

__device__ void begin(Order order) {
  if (order == Order::starts_next_first || order == Order::never_waits) let_next_kernel_start();
  if (order != Order::never_waits) wait_for_previous_kernel();
  if (order == Order::waits_first) let_next_kernel_start();
}

// to[i] = from[i] + 1
__global__ void add_one(Order order, const int* from, int* to) {
  begin(order);
  to[global_thread()] = from[global_thread()] + 1;
}
// Copies from[i] to out[i] before waiting for the previous kernel, and to out[64 + i] afterwards.
__global__ void look(const int* from, int* out) {
  out[global_thread()] = from[global_thread()];
  wait_for_previous_kernel();
  out[64 + global_thread()] = from[global_thread()];
}
// Only the first thread of a block waits for the previous kernel. The other threads wait at the
// block barrier after it.
__global__ void look_behind_a_barrier(const int* from, int* out) {
  out[global_thread()] = from[global_thread()];
  if (threadIdx.x == 0) wait_for_previous_kernel();
  __syncthreads();
  out[64 + global_thread()] = from[global_thread()];
}
// Before it waits for the previous kernel, each thread reads an element of x. Afterwards it
// overwrites an element that another thread has read.
__global__ void look_and_change(int* x, int* out) {
  out[global_thread()] = x[63 - global_thread()];
  wait_for_previous_kernel();
  x[global_thread()] = 7;
}
__global__ void write_before_waiting(int* to, int value) {
  to[global_thread()] = value;
  wait_for_previous_kernel();
}
__global__ void write_bytes(char* to, char value) {
  wait_for_previous_kernel();
  to[threadIdx.x] = value;
}
__global__ void stop_before_waiting() {
  if (threadIdx.x == 5) __trap();
  wait_for_previous_kernel();
}
__global__ void look_in_a_cluster(const int* from, int* out) {
  out[global_thread()] = from[global_thread()];
  cluster_arrive();
  cluster_wait();
  if (cluster_rank() == 1) wait_for_previous_kernel();
  cluster_arrive();
  cluster_wait();
  out[64 + global_thread()] = from[global_thread()];
}

constexpr LaunchShape kPlain{.grid = dim3(4), .block = dim3(16)};
constexpr LaunchShape kOverlaps{.grid = dim3(4), .block = dim3(16), .overlaps_previous = true};

class EmulatedOverlap : public ::testing::Test {
 protected:
  EmulatedOverlap() : before_(emulation::set_overlap(true)) {}
  ~EmulatedOverlap() override { emulation::set_overlap(before_); }

  // Checks what look() has read before and after its wait.
  void expect_seen(int early, int late) const {
    const std::vector<int> seen = out.values();
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(seen[i], early) << i;
      EXPECT_EQ(seen[64 + i], late) << i;
    }
  }

  OnDevice<int> x{std::vector<int>(64, 1)}, y{std::vector<int>(64, -1)},
      z{std::vector<int>(64, -1)}, out{std::vector<int>(128, 0)};

 private:
  bool before_;
};

TEST_F(EmulatedOverlap, WhatTheKernelBeforeWritesIsThereBehindTheWaitAlone) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(look, kOverlaps, y.data(), out.data());
  expect_seen(-1, 2);
}

TEST_F(EmulatedOverlap, AKernelThatDoesNotOverlapFindsAll) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(look, kPlain, y.data(), out.data());
  expect_seen(2, 2);
}

TEST_F(EmulatedOverlap, OffItChangesNothing) {
  emulation::set_overlap(false);
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(look, kOverlaps, y.data(), out.data());
  expect_seen(2, 2);
}

TEST_F(EmulatedOverlap, ACopyBetweenEndsTheKernelsBefore) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  CONVSCOPE_CUDA(
      cudaMemcpyAsync(z.data(), x.data(), x.bytes(), cudaMemcpyDeviceToDevice, cuda_stream()));
  launch(look, kOverlaps, y.data(), out.data());
  expect_seen(2, 2);
}

TEST_F(EmulatedOverlap, AKernelThatWaitsFirstKeepsTheNextFromThoseBeforeIt) {
  for (const Order order : {Order::waits_first, Order::never_starts_next}) {
    launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
    launch(add_one, kOverlaps, order, y.data(), z.data());
    launch(look, kOverlaps, y.data(), out.data());
    expect_seen(2, 2);
  }
}

TEST_F(EmulatedOverlap, OneThatStartsTheNextFirstLetsItRunBesideThoseBefore) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(add_one, kOverlaps, Order::starts_next_first, y.data(), z.data());
  launch(add_one, kOverlaps, Order::starts_next_first, z.data(), x.data());
  launch(look, kOverlaps, y.data(), out.data());
  expect_seen(-1, 2);
}

TEST_F(EmulatedOverlap, TheResultsAreThoseOfTheTurns) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(add_one, kOverlaps, Order::starts_next_first, y.data(), z.data());
  launch(add_one, kOverlaps, Order::waits_first, z.data(), y.data());
  EXPECT_EQ(y.values(), std::vector<int>(64, 4));
}

TEST_F(EmulatedOverlap, ThreadsAtABarrierWaitForTheOneThatWaits) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(look_behind_a_barrier, kOverlaps, y.data(), out.data());
  expect_seen(-1, 2);
}

TEST_F(EmulatedOverlap, BlocksOfAClusterWaitTogether) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(look_in_a_cluster,
         {.grid = dim3(4), .block = dim3(16), .overlaps_previous = true, .cluster = 2}, y.data(),
         out.data());
  expect_seen(-1, 2);
}

// While its blocks have not yet waited, a kernel reads the memory as it was before the previous
// kernel. What earlier blocks of the kernel write after their wait must not be lost when a later
// block starts.
TEST_F(EmulatedOverlap, EachBlockLooksBeforeTheOthersHaveWritten) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  launch(look_and_change, kOverlaps, y.data(), out.data());
  const std::vector<int> seen = out.values();
  for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(seen[i], -1);
  EXPECT_EQ(y.values(), std::vector<int>(64, 7));
}

TEST_F(EmulatedOverlap, ARecordingOverlapsWithinItself) {
  const Recording recording([&] {
    launch(look, kOverlaps, y.data(), out.data());
    launch(add_one, kOverlaps, Order::waits_first, x.data(), y.data());
    launch(look, kOverlaps, y.data(), out.data());
  });
  recording.replay();
  expect_seen(-1, 2);
  launch(add_one, kPlain, Order::waits_first, y.data(), x.data());  // x = 3
  recording.replay();
  expect_seen(2, 4);
}

// The emulation must neither write freed memory, nor put old values into new memory at the same
// address.
TEST_F(EmulatedOverlap, FreedMemoryIsLeftAlone) {
  void* memory = nullptr;
  CONVSCOPE_CUDA(cudaMalloc(&memory, 256));
  CONVSCOPE_CUDA(cudaMemsetAsync(memory, 0, 256, cuda_stream()));
  launch(add_one, kPlain, Order::waits_first, x.data(), static_cast<int*>(memory));
  CONVSCOPE_CUDA(cudaFree(memory));
  CONVSCOPE_CUDA(cudaMalloc(&memory, 256));  // usually in the same place
  launch(look, kOverlaps, static_cast<const int*>(memory), out.data());
  expect_seen(-1, -1);
  CONVSCOPE_CUDA(cudaFree(memory));
}

// The address sanitizer must detect an access to the first byte after the end of the allocation.
TEST_F(EmulatedOverlap, MemoryMayEndAnywhere) {
  const OnDevice<char> bytes(std::vector<char>(5, 'a'));
  launch(write_bytes, {.block = dim3(5)}, bytes.data(), 'b');
  launch(write_bytes, {.block = dim3(5), .overlaps_previous = true}, bytes.data(), 'c');
  EXPECT_EQ(bytes.values(), std::vector<char>(5, 'c'));
}

TEST_F(EmulatedOverlap, AnEarlyWriteOverWhatIsStillWrittenIsAnError) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  EXPECT_ERROR(ErrorKind::kRun,
               "writes memory that an earlier kernel, which may still run, has written",
               launch(write_before_waiting, kOverlaps, y.data(), 5));
  launch(write_before_waiting, kOverlaps, z.data(), 5);  // no other kernel writes there
  EXPECT_EQ(z.values(), std::vector<int>(64, 5));
}

TEST_F(EmulatedOverlap, AKernelThatNeverWaitsIsAnError) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  EXPECT_ERROR(ErrorKind::kRun, "expected wait_for_previous_kernel() in a kernel that overlaps",
               launch(add_one, kOverlaps, Order::never_waits, x.data(), z.data()));
}

TEST_F(EmulatedOverlap, AnErrorOfAKernelLeavesTheMemoryAsItWasWritten) {
  launch(add_one, kPlain, Order::waits_first, x.data(), y.data());
  EXPECT_ERROR(ErrorKind::kRun, "a thread called __trap()", launch(stop_before_waiting, kOverlaps));
  EXPECT_EQ(y.values(), std::vector<int>(64, 2));
}

}  // namespace
}  // namespace convscope
