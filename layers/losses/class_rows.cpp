// SPDX-License-Identifier: Apache-2.0
// class_rows.cpp: copies class scores of pixels to rows and back: shapes, and the kernels for the
// CPU.
#include "layers/losses/class_rows.h"

#include <algorithm>

#include "framework/parallel.h"

namespace convscope {

constinit KernelSlot<void(const Tensor&, const Tensor&)> class_rows_kernel{"class rows"};
constinit KernelSlot<void(const Tensor&, const Tensor&)> class_planes_kernel{"class rows"};

Shape labels_shape(const Shape& x) {
  Shape out;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis != 1) out.push_back(x[axis]);
  }
  return out;
}

Shape class_rows_shape(const Shape& x) { return {labels_shape(x).numel(), x[1]}; }

namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk

// Calls copy(element of a row, element of a plane) for all elements of x.
template <class Copy>
void for_each_class(const Shape& x, const Copy& copy) {
  const std::int64_t classes = x[1];
  if (x.numel() == 0) return;
  const std::int64_t pixels = x.numel() / (x[0] * classes);
  parallel_for(x[0] * pixels, std::max<std::int64_t>(1, kGrain / classes),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   const std::int64_t first = row / pixels * classes * pixels + row % pixels;
                   for (std::int64_t k = 0; k < classes; ++k) {
                     copy(row * classes + k, first + k * pixels);
                   }
                 }
               });
}

template <class T>
void to_rows(const Tensor& x, const Tensor& rows) {
  const T* const from = x.data<T>();
  T* const to = rows.data<T>();
  for_each_class(x.shape(), [=](std::int64_t row, std::int64_t plane) { to[row] = from[plane]; });
}

template <class T>
void to_planes(const Tensor& rows, const Tensor& x) {
  const T* const from = rows.data<T>();
  T* const to = x.data<T>();
  for_each_class(x.shape(), [=](std::int64_t row, std::int64_t plane) { to[plane] = from[row]; });
}

void class_rows_cpu(const Tensor& x, const Tensor& rows) {
  x.dtype() == DType::f64 ? to_rows<double>(x, rows) : to_rows<float>(x, rows);
}

void class_planes_cpu(const Tensor& rows, const Tensor& x) {
  x.dtype() == DType::f64 ? to_planes<double>(rows, x) : to_planes<float>(rows, x);
}

}  // namespace
CONVSCOPE_KERNEL(class_rows_kernel, cpu, class_rows_cpu)
CONVSCOPE_KERNEL(class_planes_kernel, cpu, class_planes_cpu)
}  // namespace convscope
