// SPDX-License-Identifier: Apache-2.0
// image_rows_cpu.cpp: copies rows of sites to their places in an image, and back.
#include "framework/parallel.h"
#include "layers/sparse_rows/image_rows.h"

namespace convscope {
namespace {

using Index = std::int64_t;
constexpr Index kRows = 256;  // that one thread copies at a time

// Calls body(index in rows, index in image) for all elements of the rows.
template <class Body>
void for_elements(const Tensor& rows, const Tensor& at, const Tensor& image, const Body& body) {
  const Index channels = rows.dim(1), places = image.numel() / (image.dim(0) * channels);
  const auto* const place = at.data<std::int32_t>();
  const ShortLoops here(static_cast<double>(4 * rows.numel()));
  parallel_for(rows.dim(0), kRows, [&](Index begin, Index end) {
    for (Index row = begin; row < end; ++row) {
      const Index first = place[2 * row] * channels * places + place[2 * row + 1];
      for (Index c = 0; c < channels; ++c) body(row * channels + c, first + c * places);
    }
  });
}

template <class Body>
void with_type(const Tensor& x, const Body& body) {
  if (x.dtype() == DType::f64) return body(double{});
  body(float{});
}

void rows_to_image_cpu(const Tensor& rows, const Tensor& at, const Tensor& image) {
  with_type(rows, [&](auto zero) {
    using T = decltype(zero);
    const T* const from = rows.data<T>();
    T* const to = image.data<T>();
    for_elements(rows, at, image,
                 [=](Index in_rows, Index in_image) { to[in_image] = from[in_rows]; });
  });
}

void image_to_rows_cpu(const Tensor& image, const Tensor& at, const Tensor& rows) {
  with_type(rows, [&](auto zero) {
    using T = decltype(zero);
    const T* const from = image.data<T>();
    T* const to = rows.data<T>();
    for_elements(rows, at, image,
                 [=](Index in_rows, Index in_image) { to[in_rows] = from[in_image]; });
  });
}

}  // namespace

CONVSCOPE_KERNEL(rows_to_image_kernel, cpu, rows_to_image_cpu)
CONVSCOPE_KERNEL(image_to_rows_kernel, cpu, image_to_rows_cpu)

}  // namespace convscope
