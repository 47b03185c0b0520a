// SPDX-License-Identifier: Apache-2.0
// device_cuda_test.cpp: the CUDA backend: memory, copies, pinned memory, marks, recorded work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "framework/memory/memory.h"
#include "tests/support/cuda.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::cuda;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::values_of;

using CudaBackend = testing::CudaTest;

Tensor counted(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0f);
  return Tensor::from(std::span<const float>(values), {count});
}

TEST_F(CudaBackend, SaysWhatTheDeviceIs) {
  const DeviceFacts facts = backend_of(cuda()).facts(0);
  EXPECT_FALSE(facts.name.empty());
  EXPECT_GE(facts.multiprocessors, 1);
  EXPECT_GE(facts.compute_capability.find('.'), 1u);
  EXPECT_GT(facts.total_bytes, facts.free_bytes - 1);
  EXPECT_GT(facts.free_bytes, 0);
}

TEST_F(CudaBackend, CopiesTensorsThereAndBack) {
  const Tensor host = counted(1000);
  const Tensor device = host.to(cuda());
  EXPECT_EQ(device.device(), cuda());
  EXPECT_EQ(values_of<float>(device), values_of<float>(host));
  EXPECT_EQ(values_of<float>(device.slice_rows(300, 5)), values_of<float>(host.slice_rows(300, 5)));
  const Tensor twin = device.clone();
  EXPECT_FALSE(twin.shares_memory_with(device));
  device.zero();
  EXPECT_THAT(values_of<float>(device), Each(0.0f));
  EXPECT_EQ(values_of<float>(twin), values_of<float>(host));
  device.copy_from(host);
  EXPECT_EQ(values_of<float>(device), values_of<float>(host));
  EXPECT_EQ(Tensor::zeros({0, 3}, DType::f32, cuda()).to(Device{}).numel(), 0);
}

TEST_F(CudaBackend, CountsItsMemoryApartFromTheHostsAndHandsBlocksOutAgain) {
  const MemoryStats host = memory_stats({});
  const MemoryStats before = memory_stats(cuda());
  void* first = allocate(cuda(), 100000);
  EXPECT_EQ(memory_stats(cuda()).live_bytes, before.live_bytes + 100000);
  EXPECT_EQ(memory_stats({}).live_bytes, host.live_bytes);
  deallocate(cuda(), first, 100000);
  void* second = allocate(cuda(), 100000);
  EXPECT_EQ(second, first);
  deallocate(cuda(), second, 100000);
  release_cached(cuda());
  EXPECT_EQ(memory_stats(cuda()).cached_bytes, 0);
}

TEST_F(CudaBackend, TooMuchMemoryIsAnErrorAfterWhichItGoesOn) {
  EXPECT_ERROR(ErrorKind::kRun, "cuda:0", Tensor::empty({1 << 20, 1 << 20}, DType::f32, cuda()));
  EXPECT_EQ(values_of<float>(counted(10).to(cuda())).back(), 9.0f);
}

TEST_F(CudaBackend, ADeviceThatIsNotThereIsAnError) {
  EXPECT_ERROR(ErrorKind::kUnavailable, "device index below",
               backend_of({DeviceType::cuda, 9}).synchronize(9));
}

TEST_F(CudaBackend, CopiesFromPinnedMemoryInOrder) {
  const DeviceBackend& backend = backend_of(cuda());
  auto* pinned = static_cast<float*>(backend.allocate_pinned(4 * sizeof(float)));
  const Tensor a = Tensor::empty({4}, DType::f32, cuda());
  const Tensor b = Tensor::empty({4}, DType::f32, cuda());
  void* mark = backend.make_mark(0);
  for (int step = 0; step < 3; ++step) {
    for (int i = 0; i < 4; ++i) pinned[i] = static_cast<float>(10 * step + i);
    backend.copy_from_host(0, a.raw_data(), pinned, 4 * sizeof(float));
    backend.set_mark(0, mark);
    backend.copy_within(0, b.raw_data(), a.raw_data(), 4 * sizeof(float));
    backend.wait_for_mark(0, mark);  // now `pinned` may be overwritten
  }
  EXPECT_THAT(values_of<float>(b), ElementsAre(20, 21, 22, 23));
  backend.free_mark(0, mark);
  backend.free_pinned(pinned);
}

TEST_F(CudaBackend, MarksTellTheTimeBetweenThem) {
  const DeviceBackend& backend = backend_of(cuda());
  void* from = backend.make_mark(0);
  void* to = backend.make_mark(0);
  const Tensor x = Tensor::empty({1 << 20}, DType::f32, cuda());
  backend.set_mark(0, from);
  x.zero();
  backend.set_mark(0, to);
  EXPECT_GT(backend.ms_between(0, from, to), 0.0);
  backend.free_mark(0, from);
  backend.free_mark(0, to);
}

TEST_F(CudaBackend, RecordedWorkRunsOnEachReplayAndNotBefore) {
  const DeviceBackend& backend = backend_of(cuda());
  const Tensor from = counted(64).to(cuda());
  const Tensor to = Tensor::zeros({64}, DType::f32, cuda());
  backend.begin_recording(0);
  to.copy_from(from);
  from.slice_rows(0, 32).zero();
  void* recording = backend.end_recording(0);
  EXPECT_THAT(values_of<float>(to), Each(0.0f));
  backend.replay(0, recording);
  EXPECT_EQ(values_of<float>(to), values_of<float>(counted(64)));
  backend.replay(0, recording);
  const auto twice = values_of<float>(to);
  EXPECT_EQ(twice[31], 0.0f);
  EXPECT_EQ(twice[32], 32.0f);
  backend.free_recording(0, recording);
}

}  // namespace
}  // namespace convscope
