// SPDX-License-Identifier: Apache-2.0
// dropout_cuda.cu: a thread draws one block of Philox and decides about four elements. The random
// numbers and the mask are those of the CPU.
#include <cmath>

#include "framework/cuda/map.cuh"
#include "framework/random.h"
#include "layers/dropout.h"

namespace convscope {
namespace {

template <bool kWhole, class T>
__global__ void __launch_bounds__(kThreads)
    dropout_blocks(const T* x, T* y, std::int64_t count, std::uint64_t seed, std::uint64_t stream,
                   std::int64_t step, const std::int64_t* base_step, std::uint32_t threshold,
                   T factor) {
  using P = Pack<T, 4>;
  const std::int64_t blocks = (count + 3) / 4;
  const auto now = static_cast<std::uint64_t>(step + (base_step != nullptr ? *base_step : 0));
  const std::uint64_t first_block = now << 32;
  for (std::int64_t block = global_thread(); block < blocks; block += global_threads()) {
    const Philox4 words =
        random_block(seed, stream, first_block + static_cast<std::uint64_t>(block));
    if (kWhole && 4 * block + 4 <= count) {
      P p = reinterpret_cast<const P*>(x)[block];
#pragma unroll
      for (int i = 0; i < 4; ++i) p.v[i] = words.x[i] >= threshold ? p.v[i] * factor : T{0};
      reinterpret_cast<P*>(y)[block] = p;
      continue;
    }
    for (int i = 0; i < 4; ++i) {
      const std::int64_t at = 4 * block + i;
      if (at < count) y[at] = words.x[i] >= threshold ? x[at] * factor : T{0};
    }
  }
}

template <class T>
void dropout_typed(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  const bool whole = is_aligned(from, 4 * sizeof(T)) && is_aligned(to, 4 * sizeof(T));
  launch(whole ? dropout_blocks<true, T> : dropout_blocks<false, T>,
         grid_of_packs(ceil_div(x.numel(), 4)), from, to, x.numel(), mask.seed, mask.stream,
         mask.step, mask.base_step, static_cast<std::uint32_t>(std::ldexp(mask.p, 32)),
         static_cast<T>(1 / (1 - mask.p)));
}

void dropout_cuda(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  if (x.dtype() == DType::f64) return dropout_typed<double>(x, mask, y);
  dropout_typed<float>(x, mask, y);
}

}  // namespace
CONVSCOPE_KERNEL(dropout_kernel, cuda, dropout_cuda)
}  // namespace convscope
