// SPDX-License-Identifier: Apache-2.0
// pad_cpu.cpp: pads images on the CPU. Each output row is a row of x (or zeros) with left and right
// margins. The row of x is copied as a whole; the few pixels of the margins are looked up one by
// one.
#include <algorithm>

#include "framework/ops/pad.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

// Returns the index of the source pixel (of `size` pixels) for index i of the padded axis, where i
// = 0 is the first pixel of x. Returns -1 for a zero. pad.cpp limits the padding, so one reflection
// is enough.
std::int64_t source_of(std::int64_t i, std::int64_t size, PadMode mode) {
  if (i >= 0 && i < size) return i;
  switch (mode) {
    case PadMode::zeros:
      return -1;
    case PadMode::reflect:
      return i < 0 ? -i : 2 * (size - 1) - i;
    case PadMode::replicate:
      return i < 0 ? 0 : size - 1;
    case PadMode::circular:
      return i < 0 ? i + size : i - size;
  }
  return -1;
}

constexpr std::int64_t kGrain = 1 << 15;  // elements of y

template <class T>
void pad_typed(const Tensor& x, const Padding2d& padding, PadMode mode, const Tensor& y) {
  const std::int64_t h = x.dim(2), w = x.dim(3), p = y.dim(2), q = y.dim(3);
  const T* const from = x.data<T>();
  T* const to = y.data<T>();
  parallel_for(y.numel() / q, std::max<std::int64_t>(1, kGrain / q),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row) {
                   T* const out = to + row * q;
                   const std::int64_t i = source_of(row % p - padding.top, h, mode);
                   if (i < 0) {
                     std::fill(out, out + q, T{0});
                     continue;
                   }
                   const T* const in = from + (row / p * h + i) * w;
                   const auto margin = [&](std::int64_t first, std::int64_t last) {
                     for (std::int64_t j = first; j < last; ++j) {
                       const std::int64_t s = source_of(j - padding.left, w, mode);
                       out[j] = s < 0 ? T{0} : in[s];
                     }
                   };
                   margin(0, padding.left);
                   std::copy(in, in + w, out + padding.left);
                   margin(padding.left + w, q);
                 }
               });
}

// Processes one image plane at a time, so that no two threads add to one pixel.
template <class T>
void pad_gradient_typed(const Tensor& dy, const Padding2d& padding, PadMode mode,
                        const Tensor& dx) {
  const std::int64_t h = dx.dim(2), w = dx.dim(3), p = dy.dim(2), q = dy.dim(3);
  const T* const from = dy.data<T>();
  T* const to = dx.data<T>();
  parallel_for(dx.dim(0) * dx.dim(1), std::max<std::int64_t>(1, kGrain / (p * q)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t plane = begin; plane < end; ++plane) {
                   const T* const in = from + plane * p * q;
                   T* const out = to + plane * h * w;
                   std::fill(out, out + h * w, T{0});
                   for (std::int64_t i = 0; i < p; ++i) {
                     const std::int64_t r = source_of(i - padding.top, h, mode);
                     if (r < 0) continue;
                     for (std::int64_t j = 0; j < q; ++j) {
                       const std::int64_t s = source_of(j - padding.left, w, mode);
                       if (s >= 0) out[r * w + s] += in[i * q + j];
                     }
                   }
                 }
               });
}

void pad_cpu(const Tensor& x, const Padding2d& padding, PadMode mode, const Tensor& y) {
  if (x.dtype() == DType::f64) return pad_typed<double>(x, padding, mode, y);
  pad_typed<float>(x, padding, mode, y);
}

void pad_gradient_cpu(const Tensor& dy, const Padding2d& padding, PadMode mode, const Tensor& dx) {
  if (dy.dtype() == DType::f64) return pad_gradient_typed<double>(dy, padding, mode, dx);
  pad_gradient_typed<float>(dy, padding, mode, dx);
}

}  // namespace
CONVSCOPE_KERNEL(pad_kernel, cpu, pad_cpu)
CONVSCOPE_KERNEL(pad_gradient_kernel, cpu, pad_gradient_cpu)
}  // namespace convscope
