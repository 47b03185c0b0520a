// SPDX-License-Identifier: Apache-2.0
// image_rows_cuda.cu: copies rows of sites to their places in an image, and back.
//
// Method    One thread copies one element of the rows. Neighbouring threads have neighbouring
//           channels, which are adjacent in a row and a plane apart in the image. In any order of
//           threads, either the reads or the writes are scattered, and they limit the speed.
#include "framework/cuda/launch.cuh"
#include "layers/sparse_rows/image_rows.h"

namespace convscope {
namespace {

using Index = std::int64_t;

template <class T, bool kToImage>
__global__ void copy_kernel(T* rows, const std::int32_t* at, T* image, Index channels, Index places,
                            Index count) {
  for (Index i = global_thread(); i < count; i += global_threads()) {
    const Index row = i / channels, c = i - row * channels;
    const Index to = (at[2 * row] * channels + c) * places + at[2 * row + 1];
    if constexpr (kToImage) {
      image[to] = rows[i];
    } else {
      rows[i] = image[to];
    }
  }
}

template <bool kToImage>
void copy(const Tensor& rows, const Tensor& at, const Tensor& image) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const Index channels = rows.dim(1), places = image.numel() / (image.dim(0) * channels);
    launch(copy_kernel<T, kToImage>, grid_for(rows.numel()), rows.data<T>(),
           at.data<std::int32_t>(), image.data<T>(), channels, places, rows.numel());
  };
  if (rows.dtype() == DType::f64) return run(double{});
  run(float{});
}

void rows_to_image_cuda(const Tensor& rows, const Tensor& at, const Tensor& image) {
  copy<true>(rows, at, image);
}

void image_to_rows_cuda(const Tensor& image, const Tensor& at, const Tensor& rows) {
  copy<false>(rows, at, image);
}

}  // namespace

CONVSCOPE_KERNEL(rows_to_image_kernel, cuda, rows_to_image_cuda)
CONVSCOPE_KERNEL(image_to_rows_kernel, cuda, image_to_rows_cuda)

}  // namespace convscope
