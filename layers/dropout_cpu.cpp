// SPDX-License-Identifier: Apache-2.0
// dropout_cpu.cpp: one block of Philox decides about four elements; word i of block b decides about
// element 4 b + i, or about image 4 b + i.
#include <algorithm>

#include "framework/parallel.h"
#include "framework/random.h"
#include "layers/dropout.h"

namespace convscope {
namespace {

// Up to 2^32 blocks in each of up to 2^32 steps.
std::uint64_t first_block_of(const DropoutMask& mask) {
  return static_cast<std::uint64_t>(mask.step + (mask.base_step != nullptr ? *mask.base_step : 0))
         << 32;
}

template <class T>
void dropout_typed(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  // Kept when the 32-bit word is at or above p 2^32.
  const std::uint32_t threshold = mask.threshold();
  const T factor = static_cast<T>(1 / (1 - mask.p));  // of an element
  const std::uint64_t first_block = first_block_of(mask);
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

// Image n is dropped or kept as a whole.
template <class T>
void drop_images(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  if (x.numel() == 0) return;
  const std::int64_t image = x.numel() / x.dim(0);
  const T factor = static_cast<T>(1 / (1 - mask.p));
  const std::uint64_t first_block = first_block_of(mask);
  const auto is_kept = [&](std::int64_t n) {
    const auto block = first_block + static_cast<std::uint64_t>(n / 4);
    return random_block(mask.seed, mask.stream, block).x[n % 4] >= mask.threshold();
  };
  constexpr std::int64_t kGrain = 1 << 14;
  parallel_for(x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t n = begin / image;
      const std::int64_t last = std::min(end, (n + 1) * image);
      const T* const from = x.data<T>();
      T* const to = y.data<T>();
      if (is_kept(mask.unit == DropUnit::batch ? 0 : n)) {
        for (std::int64_t i = begin; i < last; ++i) to[i] = from[i] * factor;
      } else {
        std::fill(to + begin, to + last, T{0});
      }
      begin = last;
    }
  });
}

void dropout_cpu(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  const bool is_double = x.dtype() == DType::f64;
  if (mask.unit != DropUnit::element) {
    return is_double ? drop_images<double>(x, mask, y) : drop_images<float>(x, mask, y);
  }
  if (is_double) return dropout_typed<double>(x, mask, y);
  dropout_typed<float>(x, mask, y);
}

}  // namespace
CONVSCOPE_KERNEL(dropout_kernel, cpu, dropout_cpu)
}  // namespace convscope
