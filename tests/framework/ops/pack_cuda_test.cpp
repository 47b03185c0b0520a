// SPDX-License-Identifier: Apache-2.0
// pack_cuda_test.cpp: tests concatenating and splitting many tensors on a GPU, also in a recorded
// CUDA graph, and tests a second stream (side queue).
#include <gtest/gtest.h>

#include "framework/distributed/device_side_queue.h"
#include "framework/ops/pack/pack.h"
#include "framework/random.h"
#include "tests/support/cuda.h"

namespace convscope {
namespace {

using testing::cuda;
using testing::values_of;
using PackOnCuda = testing::CudaTest;

std::vector<Tensor> parts_of(int count) {
  std::vector<Tensor> out;
  Generator random(4, 2);
  for (int i = 0; i < count; ++i) {
    const Tensor part = Tensor::empty({i % 7 == 3 ? 0 : 1 + i * 37 % 600});
    for (std::int64_t e = 0; e < part.numel(); ++e) {
      part.data<float>()[e] = static_cast<float>(random.below(1000));
    }
    out.push_back(part);
  }
  return out;
}

std::int64_t elements(const std::vector<Tensor>& parts) {
  std::int64_t out = 0;
  for (const Tensor& part : parts) out += part.numel();
  return out;
}

TEST_F(PackOnCuda, IsThatOfTheCpu) {
  for (const int count : {1, 40, 300}) {  // 300: several launches
    const std::vector<Tensor> parts = parts_of(count);
    const Tensor packed = Tensor::zeros({elements(parts)});
    pack(parts, packed);
    std::vector<Tensor> there, back;
    for (const Tensor& part : parts) {
      there.push_back(part.to(cuda()));
      back.push_back(Tensor::zeros(part.shape(), DType::f32, cuda()));
    }
    const Tensor packed_there = Tensor::zeros({elements(parts)}, DType::f32, cuda());
    pack(there, packed_there);
    EXPECT_EQ(values_of<float>(packed_there), values_of<float>(packed)) << count;
    unpack(packed_there, back);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      ASSERT_EQ(values_of<float>(back[i]), values_of<float>(parts[i])) << count << ", part " << i;
    }
  }
}

TEST_F(PackOnCuda, TheSizesMustFit) {
  const std::vector<Tensor> parts = {Tensor::zeros({3}, DType::f32, cuda())};
  EXPECT_THROW(pack(parts, Tensor::zeros({4}, DType::f32, cuda())), Error);
  EXPECT_THROW(pack(parts, Tensor::zeros({3})), Error);
}

// A recorded CUDA graph may contain work on a second stream (side queue). Each replay repeats this
// work.
TEST_F(PackOnCuda, IsRecordedBesideASideQueue) {
  const SideQueues& queues = side_queues_kernel.get(cuda())();
  EXPECT_EQ(queues.is_emulated, testing::is_emulated());
  void* const queue = queues.make(0);
  const DeviceBackend& backend = backend_of(cuda());
  const std::vector<Tensor> parts = {Tensor::full({5}, 2, DType::f32, cuda()),
                                     Tensor::full({9}, 3, DType::f32, cuda())};
  const Tensor packed = Tensor::zeros({14}, DType::f32, cuda());
  pack(parts, packed);  // loads the kernels
  backend.begin_recording(0);
  queues.fork(0, queue);
  pack(parts, packed);
  queues.join(0, queue);
  unpack(packed, {parts[1], parts[0]});
  void* const recording = backend.end_recording(0);
  backend.replay(0, recording);
  backend.synchronize(0);
  EXPECT_EQ(values_of<float>(parts[1]), (std::vector<float>{2, 2, 2, 2, 2, 3, 3, 3, 3}));
  EXPECT_EQ(values_of<float>(parts[0]), (std::vector<float>{3, 3, 3, 3, 3}));
  backend.free_recording(0, recording);
  queues.free(0, queue);
}

}  // namespace
}  // namespace convscope
