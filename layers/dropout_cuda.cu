// SPDX-License-Identifier: Apache-2.0
// dropout_cuda.cu: a thread draws one block of Philox and decides about four elements. The random
// numbers and the mask are those of the CPU. Where whole images are dropped, a thread draws the
// number of its image.
#include "framework/cuda/half_piece.cuh"
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
         mask.step, mask.base_step, mask.threshold(), static_cast<T>(1 / (1 - mask.p)));
}

// Blocks of row y of the grid process image y of x, and images y + gridDim.y, ...
template <class T, class Float>
__global__ void __launch_bounds__(kThreads)
    drop_images(const T* x, T* y, std::int64_t images, std::int64_t image, DropoutMask mask,
                std::uint32_t threshold, Float factor) {
  const std::int64_t base = mask.base_step != nullptr ? *mask.base_step : 0;
  const std::uint64_t first_block = static_cast<std::uint64_t>(mask.step + base) << 32;
  for (std::int64_t n = blockIdx.y; n < images; n += gridDim.y) {
    const auto unit = static_cast<std::uint64_t>(mask.unit == DropUnit::batch ? 0 : n);
    const Philox4 words = random_block(mask.seed, mask.stream, first_block + unit / 4);
    const bool is_kept = words.x[unit % 4] >= threshold;
    for (std::int64_t i = global_thread(); i < image; i += global_threads()) {
      const std::int64_t at = n * image + i;
      if constexpr (sizeof(T) == 2) {
        y[at] = from_float<T>(is_kept ? to_float(x[at]) * factor : 0.0f);
      } else {
        y[at] = is_kept ? x[at] * factor : T{0};
      }
    }
  }
}

template <class Float, class T>
void drop_images_typed(const Tensor& x, const DropoutMask& mask, const Tensor& y, T) {
  const std::int64_t images = x.dim(0), image = x.numel() / images;
  const std::int64_t blocks = ceil_div(image, kThreads);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(blocks < 256 ? blocks : 256),
                                       static_cast<unsigned>(images < 65535 ? images : 65535)),
                          .block = dim3(kThreads)};
  launch(drop_images<T, Float>, shape, static_cast<const T*>(x.raw_data()),
         static_cast<T*>(y.raw_data()), images, image, mask, mask.threshold(),
         static_cast<Float>(1 / (1 - mask.p)));
}

void dropout_cuda(const Tensor& x, const DropoutMask& mask, const Tensor& y) {
  if (mask.unit != DropUnit::element) {
    if (x.numel() == 0) return;
    if (x.dtype() == DType::f64) return drop_images_typed<double>(x, mask, y, 0.0);
    return with_stored_type(x.dtype(),
                            [&](auto zero) { drop_images_typed<float>(x, mask, y, zero); });
  }
  if (x.dtype() == DType::f64) return dropout_typed<double>(x, mask, y);
  dropout_typed<float>(x, mask, y);
}

}  // namespace
CONVSCOPE_KERNEL(dropout_kernel, cuda, dropout_cuda)
}  // namespace convscope
