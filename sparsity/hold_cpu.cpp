// SPDX-License-Identifier: Apache-2.0
// hold_cpu.cpp: one pass over the elements; bound by memory. Both values are read before one is
// chosen: a load that depends on the mask would be a jump for each element, and one in ten is
// guessed wrong.
#include "framework/parallel.h"
#include "sparsity/hold.h"

namespace convscope {
namespace {

constexpr std::int64_t kGrain = 1 << 16;

void put_back_cpu(const Tensor& keep, const Tensor& held, const Tensor& w) {
  const float* k = keep.data<float>();
  const float* from = held.data<float>();
  float* to = w.data<float>();
  parallel_for(w.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float now = to[i], old = from[i];
      to[i] = k[i] != 0 ? now : old;
    }
  });
}

void clear_masked_cpu(const Tensor& keep, const Tensor& state) {
  const float* k = keep.data<float>();
  float* to = state.data<float>();
  parallel_for(state.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float now = to[i];
      to[i] = k[i] != 0 ? now : 0.0f;
    }
  });
}

}  // namespace

CONVSCOPE_KERNEL(put_back_kernel, cpu, put_back_cpu)
CONVSCOPE_KERNEL(clear_masked_kernel, cpu, clear_masked_cpu)

}  // namespace convscope
