// SPDX-License-Identifier: Apache-2.0
// pad_cuda.cu: pads images. In the forward kernel, each pixel of y looks up its source. In the
// backward kernel, each pixel of x looks up its destinations (at most three rows times three
// columns without replication) and adds them in reading order, as on the CPU. No two threads write
// to one pixel.
#include "framework/cuda/map.cuh"
#include "framework/ops/pad.h"

namespace convscope {
namespace {

struct PadSizes {
  std::int64_t h, w, p, q, top, left;
};

// Returns the index of the source pixel for index i of the padded axis, as in pad_cpu.cpp. Returns
// -1 for a zero.
__device__ std::int64_t source_of(std::int64_t i, std::int64_t size, PadMode mode) {
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

// The column, row and plane of element number `at` in images with rows of `width` pixels and planes
// of `height` rows.
struct Place {
  std::int64_t plane;
  std::int64_t i, j;
};
__device__ Place place_of(std::int64_t at, std::int64_t height, std::int64_t width) {
  Place out{};
  if (at < (std::int64_t{1} << 32)) {  // a 32-bit division takes a third of the time
    const auto w = static_cast<std::uint32_t>(width);
    const auto h = static_cast<std::uint32_t>(height);
    const std::uint32_t row = static_cast<std::uint32_t>(at) / w;
    out.plane = row / h;
    out.i = row - static_cast<std::uint32_t>(out.plane) * h;
    out.j = static_cast<std::uint32_t>(at) - row * w;
    return out;
  }
  const std::int64_t row = at / width;
  out.plane = row / height;
  out.i = row - out.plane * height;
  out.j = at - row * width;
  return out;
}
__device__ void step_right(Place& at, std::int64_t height, std::int64_t width) {
  if (++at.j < width) return;
  at.j = 0;
  if (++at.i < height) return;
  at.i = 0;
  ++at.plane;
}

// A thread computes kWidth adjacent elements of y, and stores them with one instruction.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    pad_elements(const T* x, PadSizes s, PadMode mode, T* y, std::int64_t count) {
  for (std::int64_t pack = global_thread(); pack < count / kWidth; pack += global_threads()) {
    Place at = place_of(pack * kWidth, s.p, s.q);
    Pack<T, kWidth> out;
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      const std::int64_t i = source_of(at.i - s.top, s.h, mode);
      const std::int64_t j = source_of(at.j - s.left, s.w, mode);
      out.v[l] = i < 0 || j < 0 ? T{0} : x[(at.plane * s.h + i) * s.w + j];
      step_right(at, s.p, s.q);
    }
    reinterpret_cast<Pack<T, kWidth>*>(y)[pack] = out;
  }
}

// The indices of the padded axis to which pixel i is copied: ranges [begin, end) in ascending
// order.
struct Places {
  std::int64_t begin[3], end[3];
};
__device__ Places places_of(std::int64_t i, std::int64_t size, std::int64_t before,
                            std::int64_t padded, PadMode mode) {
  Places out{{0, i + before, 0}, {0, i + before + 1, 0}};
  const auto single = [&](int range, std::int64_t at) {
    const bool inside = range == 0 ? at >= 0 && at < before : at >= before + size && at < padded;
    out.begin[range] = inside ? at : 0;
    out.end[range] = inside ? at + 1 : 0;
  };
  switch (mode) {
    case PadMode::zeros:
      break;
    case PadMode::reflect:
      single(0, before - i);
      single(2, before + 2 * (size - 1) - i);
      break;
    case PadMode::replicate:
      if (i == 0) out.end[0] = before;
      if (i == size - 1) {
        out.begin[2] = before + size;
        out.end[2] = padded;
      }
      break;
    case PadMode::circular:
      single(0, before + i - size);
      single(2, before + i + size);
      break;
  }
  return out;
}

// Computes one element of dx: the sum of dy over all destinations of the pixel, in reading order.
template <class T>
__device__ T gathered(const T* dy, const PadSizes& s, PadMode mode, const Place& at) {
  const T* const in = dy + at.plane * s.p * s.q;
  const bool inside = at.i > s.top && at.i + 1 + (s.p - s.top - s.h) < s.h && at.j > s.left &&
                      at.j + 1 + (s.q - s.left - s.w) < s.w;
  if (mode == PadMode::zeros || (inside && mode != PadMode::circular)) {
    return in[(at.i + s.top) * s.q + at.j + s.left];
  }
  const Places down = places_of(at.i, s.h, s.top, s.p, mode);
  const Places across = places_of(at.j, s.w, s.left, s.q, mode);
  T sum = 0;
  for (int a = 0; a < 3; ++a) {
    for (std::int64_t p = down.begin[a]; p < down.end[a]; ++p) {
      for (int b = 0; b < 3; ++b) {
        for (std::int64_t q = across.begin[b]; q < across.end[b]; ++q) sum += in[p * s.q + q];
      }
    }
  }
  return sum;
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    pad_gradient_elements(const T* dy, PadSizes s, PadMode mode, T* dx, std::int64_t count) {
  for (std::int64_t pack = global_thread(); pack < count / kWidth; pack += global_threads()) {
    Place at = place_of(pack * kWidth, s.h, s.w);
    Pack<T, kWidth> out;
#pragma unroll
    for (int l = 0; l < kWidth; ++l) {
      out.v[l] = gathered(dy, s, mode, at);
      step_right(at, s.h, s.w);
    }
    reinterpret_cast<Pack<T, kWidth>*>(dx)[pack] = out;
  }
}

PadSizes sizes_of(const Shape& x, const Shape& y, const Padding2d& padding) {
  return {x[2], x[3], y[2], y[3], padding.top, padding.left};
}

template <class T>
void pad_typed(const Tensor& x, const Padding2d& padding, PadMode mode, const Tensor& y) {
  constexpr int kWidth = kPackWidth<T>;
  const bool packed = y.numel() % kWidth == 0 && is_aligned(y.raw_data(), 16);
  launch(packed ? pad_elements<kWidth, T> : pad_elements<1, T>,
         grid_of_packs(packed ? y.numel() / kWidth : y.numel()), x.data<T>(),
         sizes_of(x.shape(), y.shape(), padding), mode, y.data<T>(), y.numel());
}
template <class T>
void pad_gradient_typed(const Tensor& dy, const Padding2d& padding, PadMode mode,
                        const Tensor& dx) {
  constexpr int kWidth = kPackWidth<T>;
  const bool packed = dx.numel() % kWidth == 0 && is_aligned(dx.raw_data(), 16);
  launch(packed ? pad_gradient_elements<kWidth, T> : pad_gradient_elements<1, T>,
         grid_of_packs(packed ? dx.numel() / kWidth : dx.numel()), dy.data<T>(),
         sizes_of(dx.shape(), dy.shape(), padding), mode, dx.data<T>(), dx.numel());
}

void pad_cuda(const Tensor& x, const Padding2d& padding, PadMode mode, const Tensor& y) {
  if (x.dtype() == DType::f64) return pad_typed<double>(x, padding, mode, y);
  pad_typed<float>(x, padding, mode, y);
}

void pad_gradient_cuda(const Tensor& dy, const Padding2d& padding, PadMode mode, const Tensor& dx) {
  if (dy.dtype() == DType::f64) return pad_gradient_typed<double>(dy, padding, mode, dx);
  pad_gradient_typed<float>(dy, padding, mode, dx);
}

}  // namespace
CONVSCOPE_KERNEL(pad_kernel, cuda, pad_cuda)
CONVSCOPE_KERNEL(pad_gradient_kernel, cuda, pad_gradient_cuda)
}  // namespace convscope
