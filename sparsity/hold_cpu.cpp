// SPDX-License-Identifier: Apache-2.0
// hold_cpu.cpp: sets pruned weights back to their held values in one pass over the elements;
// memory-bound. The loop loads both the current and the held value and then selects one. A load
// that depends on the mask would need a branch for each element, and one branch in ten would be
// mispredicted.
#include "framework/parallel.h"
#include "sparsity/hold.h"

namespace convscope {
namespace {

constexpr std::int64_t kGrain = 1 << 16;

void put_back(const float* __restrict keep, const float* __restrict held, float* __restrict value,
              std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float now = value[i], old = held[i];
    value[i] = keep[i] != 0 ? now : old;
  }
}

void clear(const float* __restrict keep, float* __restrict value, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float now = value[i];
    value[i] = keep[i] != 0 ? now : 0.0f;
  }
}

void rest_cpu(const RestedTensor* all, int count) {
  for (const RestedTensor* a = all; a != all + count; ++a) {
    const float* const keep = a->keep.data<float>();
    const float* const held = a->held.defined() ? a->held.data<float>() : nullptr;
    float* const value = a->value.data<float>();
    parallel_for(a->value.numel(), kGrain, [=](std::int64_t begin, std::int64_t end) {
      if (held == nullptr) {
        clear(keep + begin, value + begin, end - begin);
      } else {
        put_back(keep + begin, held + begin, value + begin, end - begin);
      }
    });
  }
}

}  // namespace
CONVSCOPE_KERNEL(rest_kernel, cpu, rest_cpu)
}  // namespace convscope
