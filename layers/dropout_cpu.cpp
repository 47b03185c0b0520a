// SPDX-License-Identifier: Apache-2.0
// dropout_cpu.cpp: one block of Philox decides about four elements; word i of block b decides about
// element 4 b + i.
#include <algorithm>
#include <cmath>

#include "framework/parallel.h"
#include "framework/random.h"
#include "layers/dropout.h"

namespace convscope {
namespace {

template <class T>
void dropout_typed(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  // Kept when the 32-bit word is at or above p 2^32.
  const auto threshold = static_cast<std::uint32_t>(std::ldexp(mask.p, 32));
  const T factor = static_cast<T>(1 / (1 - mask.p));
  // Up to 2^32 blocks in each of up to 2^32 steps.
  const std::uint64_t first_block =
      static_cast<std::uint64_t>(mask.step + (mask.base_step != nullptr ? *mask.base_step : 0))
      << 32;
  parallel_for((x.numel() + 3) / 4, 1 << 10, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const Philox4 words =
          random_block(mask.seed, mask.stream, first_block + static_cast<std::uint64_t>(block));
      const std::int64_t last = std::min<std::int64_t>(4, x.numel() - 4 * block);
      for (std::int64_t i = 0; i < last; ++i) {
        const std::int64_t at = 4 * block + i;
        to[at] = words.x[i] >= threshold ? from[at] * factor : T{0};
      }
    }
  });
}

void dropout_cpu(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  if (x.dtype() == DType::f64) return dropout_typed<double>(x, mask, y);
  dropout_typed<float>(x, mask, y);
}

}  // namespace
CONVSCOPE_KERNEL(dropout_kernel, cpu, dropout_cpu)
}  // namespace convscope
