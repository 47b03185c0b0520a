// SPDX-License-Identifier: Apache-2.0
// emulation_test.cpp: tests the CUDA emulation without libconvscope. The kernels are in this file
// and are compiled for the emulation (program test_emulation).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "framework/cuda/blas.cuh"
#include "framework/cuda/emulation/environment.h"
#include "framework/cuda/emulation/runtime.h"
#include "framework/cuda/emulation/thread_order.h"
#include "framework/cuda/launch.cuh"
#include "framework/cuda/tma.cuh"
#include "tests/framework/cuda/on_device.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::Each;
using testing::ElementsAre;

// ---- kernels ----

__global__ void write_index(std::int64_t* out, std::int64_t count) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) out[i] = 10 * i;
}

// Each thread reads the value that its neighbour has written before the block barrier.
__global__ void rotate(const int* from, int* to) {
  __shared__ int tile[64];
  tile[threadIdx.x] = from[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  to[blockIdx.x * 64 + threadIdx.x] = tile[(threadIdx.x + 33) % 64];
}

__global__ void __launch_bounds__(128) sum_of_blocks(const float* x, float* sums) {
  __shared__ float scratch[32];
  const float sum = block_sum(x[global_thread()], scratch);
  if (threadIdx.x == 5) sums[blockIdx.x] = sum;
}

__global__ void index_in_three_dimensions(int* out) {
  const unsigned number = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  out[block * threads + number] = static_cast<int>(block * 1000 + number);
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* mine = out + lane * 6;
  mine[0] = __shfl_sync(kAllLanes, lane, 7);
  mine[1] = __shfl_xor_sync(kAllLanes, lane, 3);
  mine[2] = __shfl_up_sync(kAllLanes, lane, 2);
  mine[3] = __shfl_down_sync(kAllLanes, lane, 2, 8);
  mine[4] = static_cast<int>(__ballot_sync(kAllLanes, lane % 4 == 0));
  mine[5] = __any_sync(kAllLanes, lane == 9) + 2 * __all_sync(kAllLanes, lane < 32);
}

__global__ void votes(int* out) {
  out[3 * threadIdx.x + 0] = __syncthreads_count(threadIdx.x % 3 == 0);
  out[3 * threadIdx.x + 1] = __syncthreads_or(threadIdx.x == 40);
  out[3 * threadIdx.x + 2] = __syncthreads_and(threadIdx.x != 40);
}

__global__ void first_of_warp(int* out) {
  const int seven = __shfl_sync(kAllLanes, threadIdx.x == 0 ? 7 : 0, 0);
  out[threadIdx.x] = static_cast<int>(__ballot_sync(kAllLanes, 1)) + seven;
}

// Multiplies two 32x32 matrices with one row per lane, as a tensor-core instruction distributes
// them.
struct RowPair {
  float a, b;
};
__global__ void dot_of_lanes(const float* a, const float* b, float* out) {
  out[threadIdx.x] = emulation::warp_collective<float>(
      "dot", RowPair{a[threadIdx.x], b[threadIdx.x]},
      [](const emulation::Lanes<RowPair>& in, emulation::Lanes<float>& result) {
        float sum = 0;
        for (const RowPair& pair : in) sum += pair.a * pair.b;
        for (unsigned i = 0; i < 32; ++i) result[i] = sum + static_cast<float>(i);
      });
}

__global__ void halves_of_a_warp(int* out) {
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  int value = static_cast<int>(threadIdx.x);
  for (int offset = 8; offset > 0; offset /= 2) value += __shfl_xor_sync(mask, value, offset);
  out[threadIdx.x] = value;
}

__global__ void reverse_in_dynamic_shared(const int* x, int* y) {
  int* tile = dynamic_shared<int>();
  tile[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

__global__ void read_fresh_shared(float* out) { out[threadIdx.x] = dynamic_shared<float>()[0]; }
#if defined(__SANITIZE_ADDRESS__)
__global__ void read_past_shared(float* out) { out[0] = dynamic_shared<float>()[8]; }
__global__ void write_past_global(float* out, int i) { out[i] = 1; }
#endif

__global__ void some_leave_before_the_barrier(int) {
  if (threadIdx.x >= 48) return;
  __syncthreads();
}
__global__ void barrier_for_half_a_warp(int) {
  if (threadIdx.x < 16) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}
__global__ void shuffle_for_half_a_warp(int) {
  if (threadIdx.x < 16) (void)__shfl_sync(kAllLanes, 1, 0);
}
__global__ void lanes_differ(int) {
  if (threadIdx.x % 2 == 0) {
    (void)__shfl_sync(kAllLanes, 1, 0);
  } else {
    (void)__ballot_sync(kAllLanes, 1);
  }
}
__global__ void not_in_its_mask(int) { (void)__shfl_sync(0x1u, 1, 0); }
__global__ void barriers_differ(int) {
  if (threadIdx.x == 0) {
    __syncthreads();
  } else {
    (void)__syncthreads_or(1);
  }
}
__global__ void throws_behind_a_barrier(int from) {
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= from) throw std::out_of_range("thread 40");
  __syncthreads();
}
__global__ void number_of_turns(int* turns, int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block * blockDim.x + threadIdx.x] = (*turns)++;
}
__global__ void traps(int) {
  if (threadIdx.x == 3) __trap();
}

// Puts an mbarrier into the middle of an array in shared memory, then writes four elements from
// index `first` on.
__global__ void writes_beside_a_barrier_of_phases(int first) {
  auto* const numbers = dynamic_shared<std::uint64_t>();
  if (threadIdx.x == 0) tma::start_phases(numbers + 8, 1);
  __syncthreads();
  if (threadIdx.x < 4) numbers[first + static_cast<int>(threadIdx.x)] = 7;
}

std::vector<int> counted(std::size_t count) {
  std::vector<int> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

void expect_error(const std::function<void()>& run, ErrorKind kind,
                  const std::vector<std::string>& parts) {
  try {
    run();
    FAIL() << "expected an error with: " << parts[0];
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
  }
}

// ---- launches ----

TEST(Emulation, RunsEachThreadOfTheGridOnce) {
  OnDevice<std::int64_t> out(3001);
  launch(write_index, grid_for(3001), out.data(), 3001);
  const auto values = out.values();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], 10 * static_cast<int>(i));
}

TEST(Emulation, CountsThreadsAndBlocksInThreeDimensions) {
  OnDevice<int> out(12 * 24);
  launch(index_in_three_dimensions, {.grid = dim3(2, 3, 2), .block = dim3(4, 3, 2)}, out.data());
  const auto values = out.values();
  for (int b = 0; b < 12; ++b) {
    for (int t = 0; t < 24; ++t)
      ASSERT_EQ(values[static_cast<std::size_t>(b * 24 + t)], b * 1000 + t);
  }
}

TEST(Emulation, ABarrierLetsThreadsReadWhatOthersWroteBeforeIt) {
  const OnDevice<int> from(counted(256));
  OnDevice<int> to(256);
  launch(rotate, {.grid = dim3(4), .block = dim3(64)}, from.data(), to.data());
  const auto values = to.values();
  for (std::size_t i = 0; i < 256; ++i) {
    ASSERT_EQ(values[i], static_cast<int>(i / 64 * 64 + (i % 64 + 33) % 64));
  }
}

TEST(Emulation, SumsOverABlock) {
  std::vector<float> x(3 * 128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i / 128 + 1);
  const OnDevice<float> from(x);
  OnDevice<float> sums(3);
  launch(sum_of_blocks, {.grid = dim3(3), .block = dim3(128)}, from.data(), sums.data());
  EXPECT_THAT(sums.values(), ElementsAre(128.0f, 256.0f, 384.0f));
}

TEST(Emulation, ShufflesAndBallotsSeeAllLanes) {
  OnDevice<int> out(32 * 6);
  launch(shuffles, {.block = dim3(32)}, out.data());
  const auto v = out.values();
  for (int lane = 0; lane < 32; ++lane) {
    const int* mine = v.data() + lane * 6;
    EXPECT_EQ(mine[0], 7);
    EXPECT_EQ(mine[1], lane ^ 3);
    EXPECT_EQ(mine[2], lane >= 2 ? lane - 2 : lane);
    EXPECT_EQ(mine[3], lane % 8 + 2 < 8 ? lane + 2 : lane);
    EXPECT_EQ(mine[4], 0x11111111);
    EXPECT_EQ(mine[5], 3);
  }
}

TEST(Emulation, BarriersCountAndVote) {
  OnDevice<int> out(3 * 64);
  launch(votes, {.block = dim3(64)}, out.data());
  const auto v = out.values();
  for (std::size_t i = 0; i < 64; ++i) {
    ASSERT_EQ(v[3 * i], 22);
    ASSERT_EQ(v[3 * i + 1], 1);
    ASSERT_EQ(v[3 * i + 2], 0);
  }
}

TEST(Emulation, AWarpCollectiveComputesFromTheArgumentsOfAllLanes) {
  std::vector<float> ones(32, 1.0f);
  std::vector<float> rising(32);
  std::iota(rising.begin(), rising.end(), 0.0f);
  const OnDevice<float> a(ones);
  const OnDevice<float> b(rising);
  OnDevice<float> out(32);
  launch(dot_of_lanes, {.block = dim3(32)}, a.data(), b.data(), out.data());
  const auto values = out.values();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], 496.0f + static_cast<float>(i));
}

TEST(Emulation, PartsOfAWarpMeetByThemselves) {
  OnDevice<int> out(32);
  launch(halves_of_a_warp, {.block = dim3(32)}, out.data());
  const auto values = out.values();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(values[i], i < 16 ? 120 : 376);
}

TEST(Emulation, AWarpCutByTheEndOfTheBlockMeetsWithTheLanesItHas) {
  OnDevice<int> out(24 * 6);
  launch(first_of_warp, {.block = dim3(24)}, out.data());
  EXPECT_THAT(out.values()[23], 0xffffff + 7);
}

TEST(Emulation, AShuffleFromALaneThatIsNotThereIsAnError) {
  const OnDevice<float> x(40);
  OnDevice<float> sums(1);
  expect_error([&] { launch(sum_of_blocks, {.block = dim3(40)}, x.data(), sums.data()); },
               ErrorKind::kRun, {"__shfl_xor_sync reads lane 16, which does not participate"});
}

TEST(Emulation, DynamicSharedMemoryBelongsToTheBlockAndBeginsAsNaN) {
  const OnDevice<int> x(counted(96));
  OnDevice<int> y(96);
  launch(reverse_in_dynamic_shared, {.block = dim3(96), .shared_bytes = 96 * sizeof(int)}, x.data(),
         y.data());
  const auto values = y.values();
  for (std::size_t i = 0; i < 96; ++i) ASSERT_EQ(values[i], static_cast<int>(95 - i));

  OnDevice<float> fresh(32);
  launch(read_fresh_shared, {.block = dim3(32), .shared_bytes = 4}, fresh.data());
  EXPECT_THAT(fresh.values(), Each(testing::IsNan()));
}

TEST(Emulation, AGridWithoutBlocksIsNoLaunch) {
  launch(write_index, {.grid = dim3(0)}, static_cast<std::int64_t*>(nullptr), 1);
}

// ---- errors ----

TEST(Emulation, ThreadsThatLeaveBeforeABarrierAreAnError) {
  expect_error(
      [] { launch(some_leave_before_the_barrier, {.block = dim3(64)}, 0); }, ErrorKind::kRun,
      {"deadlock: ", "[0 to 47] wait at __syncthreads", "[48 to 63] have left the kernel"});
  // The failed launch does not affect the next one.
  OnDevice<int> out(32);
  launch(halves_of_a_warp, {.block = dim3(32)}, out.data());
  EXPECT_EQ(out.values()[0], 120);
}

TEST(Emulation, DivergentBarriersAndCollectivesAreErrors) {
  expect_error([] { launch(barrier_for_half_a_warp, {.block = dim3(32)}, 0); }, ErrorKind::kRun,
               {"[0 to 15] wait at __syncthreads", "[16 to 31] wait in __syncwarp"});
  expect_error([] { launch(shuffle_for_half_a_warp, {.block = dim3(32)}, 0); }, ErrorKind::kRun,
               {"[0 to 15] wait in __shfl_sync", "[16 to 31] have left"});
  expect_error([] { launch(lanes_differ, {.block = dim3(32)}, 0); }, ErrorKind::kRun,
               {" of its warp waits in __", "this lane came to __"});
  expect_error([] { launch(not_in_its_mask, {.block = dim3(32)}, 0); }, ErrorKind::kRun,
               {"does not name the calling lane"});
  expect_error([] { launch(barriers_differ, {.block = dim3(32)}, 0); }, ErrorKind::kRun,
               {"another kind of __syncthreads"});
  expect_error([] { launch(traps, {.grid = dim3(1), .block = dim3(8)}, 0); }, ErrorKind::kRun,
               {"thread 3", "__trap"});
}

TEST(Emulation, WhatIsWrittenOverABarrierOfPhasesIsAnError) {
  const LaunchShape shape{.block = dim3(32), .shared_bytes = 128};
  launch(writes_beside_a_barrier_of_phases, shape, 4);
  launch(writes_beside_a_barrier_of_phases, shape, 9);
  for (const int first : {5, 6, 8}) {
    expect_error([&] { launch(writes_beside_a_barrier_of_phases, shape, first); }, ErrorKind::kRun,
                 {"something else was written to the address of a barrier"});
  }
  launch(writes_beside_a_barrier_of_phases, shape, 4);
}

TEST(Emulation, WhatAKernelThrowsLeavesTheLaunch) {
  EXPECT_THROW(launch(throws_behind_a_barrier, {.grid = dim3(2), .block = dim3(64)}, 40),
               std::out_of_range);
  OnDevice<int> out(32);
  launch(halves_of_a_warp, {.block = dim3(32)}, out.data());
  EXPECT_EQ(out.values()[0], 120);
  launch(throws_behind_a_barrier, {.block = dim3(64)}, 64);
}

// A mistyped value of the variable must be an error. Otherwise the tests would silently run in the
// default mode.
TEST(Emulation, KnowsTheWordsOfItsVariables) {
  const char* const name = "CONVSCOPE_EMULATION_WORD_OF_A_TEST";
  const auto says = [&] { return emulation::environment_says(name, "reverse", "forward"); };
  EXPECT_FALSE(says());
  for (const auto& [given, is_reverse] :
       {std::pair{"reverse", true}, {"forward", false}, {"", false}}) {
    ::setenv(name, given, 1);
    EXPECT_EQ(says(), is_reverse) << given;
  }
  ::setenv(name, "revers", 1);
  EXPECT_ERROR(ErrorKind::kInvalid, "to be reverse or forward, got 'revers'", says());
  ::unsetenv(name);
}

TEST(Emulation, GridsBeginWithTheirFirstThreadOrWithTheirLast) {
  for (const auto order :
       {emulation::ThreadOrder::last_first, emulation::ThreadOrder::first_first}) {
    for (const unsigned blocks_of_cluster : {1u, 2u}) {
      constexpr int kThreads = 4 * 3 * 2 * 64;
      const OnDevice<int> turns(std::vector<int>{0});
      OnDevice<int> out(kThreads);
      const emulation::ThreadOrder before = emulation::set_thread_order(order);
      launch(number_of_turns,
             {.grid = dim3(4, 3, 2), .block = dim3(64), .cluster = blocks_of_cluster}, turns.data(),
             out.data());
      EXPECT_EQ(emulation::set_thread_order(before), order);
      const bool reverse = order == emulation::ThreadOrder::last_first;
      const std::vector<int> got = out.values();
      for (int i = 0; i < kThreads; ++i) {
        ASSERT_EQ(got[static_cast<std::size_t>(i)], reverse ? kThreads - 1 - i : i);
      }
    }
  }
}

TEST(Emulation, RefusesLaunchesThatADeviceRefuses) {
  expect_error([] { launch(traps, {.block = dim3(1025)}, 0); }, ErrorKind::kInvalid,
               {"1 to 1024 threads"});
  expect_error([] { launch(traps, {.grid = dim3(1, 70000)}, 0); }, ErrorKind::kInvalid, {"65535"});
  expect_error([] { launch(traps, {.block = dim3(32), .shared_bytes = 240000}, 0); },
               ErrorKind::kInvalid, {"232448"});
}

#if defined(__SANITIZE_ADDRESS__)
TEST(EmulationDeathTest, TheAddressSanitizerSeesKernelsPastTheirMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  OnDevice<float> out(8);
  EXPECT_DEATH(launch(read_past_shared, {.block = dim3(1), .shared_bytes = 32}, out.data()),
               "heap-buffer-overflow");
  EXPECT_DEATH(launch(write_past_global, {.block = dim3(1)}, out.data(), 8),
               "heap-buffer-overflow");
}
#endif

// ---- host functions ----

TEST(Emulation, CapturedWorkIsDoneByEachReplayAndNotBefore) {
  OnDevice<int> a(counted(64));
  OnDevice<int> b(64);
  const Recording recording([&] {
    launch(rotate, {.block = dim3(64)}, a.data(), b.data());
    CONVSCOPE_CUDA(
        cudaMemcpyAsync(a.data(), b.data(), a.bytes(), cudaMemcpyDeviceToDevice, cuda_stream()));
  });
  EXPECT_EQ(a.values(), counted(64));
  for (int i = 0; i < 3; ++i) recording.replay();
  EXPECT_EQ(a.values()[0], 3 * 33 % 64);
}

TEST(Emulation, WaitingOrAllocatingBreaksACaptureOff) {
  cudaStream_t stream = cuda_stream();
  for (const bool allocate : {false, true}) {
    CONVSCOPE_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    void* memory = nullptr;
    EXPECT_EQ(allocate ? cudaMalloc(&memory, 64) : cudaStreamSynchronize(stream),
              cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(graph, nullptr);
  }
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(Emulation, CopiesKnowDeviceMemoryFromHostMemory) {
  OnDevice<int> device(4);
  int host[8]{};
  EXPECT_EQ(cudaMemcpyAsync(host, host + 4, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(host, device.data(), 20, cudaMemcpyDeviceToHost),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(host, 0, 8), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host), cudaErrorInvalidDevicePointer);
  EXPECT_EQ(cudaMemcpyAsync(host, device.data(), 16, cudaMemcpyDeviceToHost), cudaSuccess);
  (void)cudaGetLastError();
}

TEST(Emulation, MemoryHasAnEnd) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, std::size_t{1} << 40), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  (void)cudaGetLastError();
}

TEST(Emulation, MultipliesRowMajorMatrices) {
  // The test computes [1 2 3; 4 5 6] times its transpose, which is [14 32; 32 77].
  const OnDevice<float> a({1, 2, 3, 4, 5, 6});
  const OnDevice<float> a_transposed({1, 4, 2, 5, 3, 6});
  OnDevice<float> c(std::vector<float>(4, std::numeric_limits<float>::quiet_NaN()));
  BlasGemm gemm{.m = 2,
                .n = 2,
                .k = 3,
                .a = a.data(),
                .b = a.data(),
                .c = c.data(),
                .lda = 3,
                .ldb = 3,
                .ldc = 2,
                .transpose_b = true};
  blas_gemm(gemm);
  EXPECT_THAT(c.values(), ElementsAre(14, 32, 32, 77));
  gemm.a = a_transposed.data();
  gemm.lda = 2;
  gemm.transpose_a = true;
  gemm.alpha = 2;
  gemm.beta = 0.5;
  blas_gemm(gemm);
  EXPECT_THAT(c.values(), ElementsAre(35, 80, 80, 192.5));
  gemm.k = 0;
  gemm.beta = 0;
  blas_gemm(gemm);
  EXPECT_THAT(c.values(), Each(0.0f));
}

TEST(Emulation, MultipliesHalfAndRoundedOperands) {
  const float third = 1.0f / 3.0f;
  const OnDevice<Float16> half(std::vector{Float16(third)});
  const OnDevice<float> one(std::vector{1.0f});
  const OnDevice<float> full(std::vector{third});
  OnDevice<float> c(1);
  const OnDevice<Float16> half_one(std::vector{Float16(1.0f)});
  BlasGemm gemm{.m = 1,
                .n = 1,
                .k = 1,
                .a = half.data(),
                .b = half_one.data(),
                .c = c.data(),
                .lda = 1,
                .ldb = 1,
                .ldc = 1,
                .dtype = DType::f16};
  blas_gemm(gemm);
  EXPECT_EQ(c.values()[0], static_cast<float>(Float16(third)));
  gemm = {.m = 1,
          .n = 1,
          .k = 1,
          .a = full.data(),
          .b = one.data(),
          .c = c.data(),
          .lda = 1,
          .ldb = 1,
          .ldc = 1,
          .math = MathMode::tf32};
  blas_gemm(gemm);
  EXPECT_NE(c.values()[0], third);
  EXPECT_NEAR(c.values()[0], third, third * 0x1p-11f);
}

TEST(Emulation, MultipliesComplexMatricesOfABatch) {
  // A batch of two complex 1x1 products: (1+2i)(3+4i) = -5+10i. If both operands are conjugated,
  // the result is -5-10i.
  const OnDevice<float> a({1, 2, 1, 2});
  const OnDevice<float> b({3, 4, 3, 4});
  OnDevice<float> c(4);
  BlasComplexGemm gemm{.m = 1,
                       .n = 1,
                       .k = 1,
                       .a = a.data(),
                       .b = b.data(),
                       .c = c.data(),
                       .lda = 1,
                       .ldb = 1,
                       .ldc = 1,
                       .batch = 2,
                       .stride_a = 1,
                       .stride_b = 1,
                       .stride_c = 1};
  blas_gemm(gemm);
  EXPECT_THAT(c.values(), ElementsAre(-5, 10, -5, 10));
  gemm.transpose_a = gemm.transpose_b = gemm.conjugate_a = gemm.conjugate_b = true;
  blas_gemm(gemm);
  EXPECT_THAT(c.values(), ElementsAre(-5, -10, -5, -10));
}

}  // namespace
}  // namespace convscope
