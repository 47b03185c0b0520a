// SPDX-License-Identifier: Apache-2.0
// concat_cuda.cu: copies the rows of a part of a concatenated tensor, or into it.
//
// Method     One thread copies one element.
#include "framework/cuda/launch.cuh"
#include "framework/ops/concat/concat.h"

namespace convscope {
namespace {

template <class T>
__global__ void copy_rows(const T* from, StridedRows rows, T* to) {
  const std::int64_t all = rows.rows * rows.count;
  for (std::int64_t i = global_thread(); i < all; i += global_threads()) {
    const std::int64_t row = i / rows.count, at = i % rows.count;
    to[rows.to_offset + row * rows.to_stride + at] =
        from[rows.from_offset + row * rows.from_stride + at];
  }
}

// A copy needs only the bits of an element.
template <class T>
void copy_typed(const Tensor& from, const StridedRows& rows, const Tensor& to) {
  launch(copy_rows<T>, grid_for(rows.rows * rows.count), static_cast<const T*>(from.raw_data()),
         rows, static_cast<T*>(to.raw_data()));
}

void copy_rows_cuda(const Tensor& from, const StridedRows& rows, const Tensor& to) {
  if (from.dtype() == DType::f64) return copy_typed<std::uint64_t>(from, rows, to);
  copy_typed<std::uint32_t>(from, rows, to);
}

}  // namespace
CONVSCOPE_KERNEL(copy_rows_kernel, cuda, copy_rows_cuda)
}  // namespace convscope
