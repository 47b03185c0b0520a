// SPDX-License-Identifier: Apache-2.0
// class_rows_cuda.cu: copies class scores of pixels to rows and back on a GPU. Adjacent threads
// have adjacent pixels, so that the planes are read and written in whole lines.
#include "framework/cuda/launch.cuh"
#include "layers/losses/class_rows.h"

namespace convscope {
namespace {

// Copies from planes to rows, or from rows to planes.
template <bool kToRows, class T>
__global__ void copy_classes(const T* from, T* to, std::int64_t count, std::int64_t classes,
                             std::int64_t pixels) {
  for (std::int64_t i = global_thread(); i < count; i += global_threads()) {
    const std::int64_t plane = i / pixels;
    const std::int64_t row = plane / classes * pixels + i % pixels;
    const std::int64_t in_rows = row * classes + plane % classes;
    if constexpr (kToRows) {
      to[in_rows] = from[i];
    } else {
      to[i] = from[in_rows];
    }
  }
}

template <bool kToRows, class T>
void copy_typed(const Tensor& from, const Tensor& to, const Shape& x) {
  launch(copy_classes<kToRows, T>, grid_for(x.numel()), from.data<T>(), to.data<T>(), x.numel(),
         x[1], x.numel() / (x[0] * x[1]));
}

void class_rows_cuda(const Tensor& x, const Tensor& rows) {
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) return copy_typed<true, double>(x, rows, x.shape());
  copy_typed<true, float>(x, rows, x.shape());
}

void class_planes_cuda(const Tensor& rows, const Tensor& x) {
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) return copy_typed<false, double>(rows, x, x.shape());
  copy_typed<false, float>(rows, x, x.shape());
}

}  // namespace
CONVSCOPE_KERNEL(class_rows_kernel, cuda, class_rows_cuda)
CONVSCOPE_KERNEL(class_planes_kernel, cuda, class_planes_cuda)
}  // namespace convscope
