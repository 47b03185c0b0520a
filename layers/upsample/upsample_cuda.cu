// SPDX-License-Identifier: Apache-2.0
// upsample_cuda.cu: changes the size of images on a GPU. A thread computes one element of y, or of
// dx: it adds the pixels of y that read its pixel, in reading order, so that no two threads write
// to one pixel. Adjacent threads have adjacent elements.
#include "framework/cuda/half_piece.cuh"
#include "framework/cuda/number.cuh"
#include "layers/upsample/upsample.h"

namespace convscope {
namespace {

// The place of an element in [planes, height, width, lanes].
struct UpsamplePlace {
  std::int64_t plane, i, j, lane;
};
__device__ UpsamplePlace place_in(std::int64_t at, std::int64_t height, std::int64_t width,
                                  std::int64_t lanes) {
  const std::int64_t pixel = at / lanes, row = pixel / width, plane = row / height;
  return {plane, row - plane * height, pixel - row * width, at - pixel * lanes};
}

template <class T, class Float>
__global__ void __launch_bounds__(kThreads)
    upsample_elements(UpsampleSizes size, const T* x, T* y, std::int64_t count) {
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const UpsamplePlace to = place_in(at, size.rows.out, size.columns.out, size.lanes);
    const UpsampleTap<Float> row = size.rows.tap<Float>(to.i);
    const UpsampleTap<Float> column = size.columns.tap<Float>(to.j);
    const auto pixel = [&](std::int64_t i, std::int64_t j) {
      return number<T, Float>(
          x[((to.plane * size.rows.in + i) * size.columns.in + j) * size.lanes + to.lane]);
    };
    if (size.rows.mode == UpsampleMode::nearest) {
      y[at] = stored_as<T, Float>(pixel(row.first, column.first));
      continue;
    }
    const Float rest = Float(1) - row.weight;
    const Float left =
        rest * pixel(row.first, column.first) + row.weight * pixel(row.second, column.first);
    const Float right =
        rest * pixel(row.first, column.second) + row.weight * pixel(row.second, column.second);
    y[at] = stored_as<T, Float>((Float(1) - column.weight) * left + column.weight * right);
  }
}

// Returns the weight with which a pixel of y reads pixel i.
template <class Float>
__device__ Float weight_of(const UpsampleTap<Float>& tap, std::int64_t i) {
  return (tap.first == i ? Float(1) - tap.weight : Float(0)) +
         (tap.second == i ? tap.weight : Float(0));
}

template <class T, class Float>
__global__ void __launch_bounds__(kThreads)
    upsample_gradient_elements(UpsampleSizes size, const T* dy, T* dx, std::int64_t count) {
  for (std::int64_t at = global_thread(); at < count; at += global_threads()) {
    const UpsamplePlace to = place_in(at, size.rows.in, size.columns.in, size.lanes);
    const UpsampleAxis::Range down = size.rows.readers(to.i), across = size.columns.readers(to.j);
    Float sum = 0;
    for (std::int64_t p = down.begin; p < down.end; ++p) {
      const Float row = weight_of(size.rows.tap<Float>(p), to.i);
      if (row == Float(0)) continue;
      for (std::int64_t q = across.begin; q < across.end; ++q) {
        const Float weight = row * weight_of(size.columns.tap<Float>(q), to.j);
        if (weight == Float(0)) continue;
        const std::int64_t from =
            ((to.plane * size.rows.out + p) * size.columns.out + q) * size.lanes + to.lane;
        sum += weight * number<T, Float>(dy[from]);
      }
    }
    dx[at] = stored_as<T, Float>(sum);
  }
}

template <class Float, class T>
void upsample_on(const UpsampleSizes& size, const Tensor& from, const Tensor& to, bool is_gradient,
                 T) {
  launch(is_gradient ? upsample_gradient_elements<T, Float> : upsample_elements<T, Float>,
         grid_for(to.numel()), size, static_cast<const T*>(from.raw_data()),
         static_cast<T*>(to.raw_data()), to.numel());
}

void upsample_any(const UpsampleSizes& size, const Tensor& from, const Tensor& to,
                  bool is_gradient) {
  if (from.dtype() == DType::f64) return upsample_on<double>(size, from, to, is_gradient, 0.0);
  with_stored_type(from.dtype(),
                   [&](auto zero) { upsample_on<float>(size, from, to, is_gradient, zero); });
}

void upsample_cuda(const UpsampleSizes& size, const Tensor& x, const Tensor& y) {
  upsample_any(size, x, y, false);
}
void upsample_gradient_cuda(const UpsampleSizes& size, const Tensor& dy, const Tensor& dx) {
  upsample_any(size, dy, dx, true);
}

}  // namespace
CONVSCOPE_KERNEL(upsample_kernel, cuda, upsample_cuda)
CONVSCOPE_KERNEL(upsample_gradient_kernel, cuda, upsample_gradient_cuda)
}  // namespace convscope
