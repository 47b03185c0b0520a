// SPDX-License-Identifier: Apache-2.0
// pad_cuda.cu: forward, each pixel of y looks up where it came from; backward, each pixel of x looks
// up where it went to, at most three rows times three columns without replication, and adds those in
// reading order, as the CPU does: no two threads write to one pixel.
#include "framework/cuda/launch.cuh"
#include "framework/ops/pad.h"

namespace convscope {
namespace {

struct PadSizes {
  std::int64_t h, w, p, q, top, left;
};

// As pad_cpu.cpp: which of `size` pixels stands at place i, i = 0 at the first real pixel; -1: none.
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

// A block has rows, its threads run along them.
template <class T>
__global__ void pad_rows(const T* x, PadSizes s, PadMode mode, T* y, std::int64_t rows) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
       row < rows; row += step) {
    const std::int64_t plane = row / s.p;
    const std::int64_t i = source_of(row - plane * s.p - s.top, s.h, mode);
    const T* const in = x + (plane * s.h + (i < 0 ? 0 : i)) * s.w;
    for (std::int64_t j = threadIdx.x; j < s.q; j += blockDim.x) {
      const std::int64_t from = i < 0 ? -1 : source_of(j - s.left, s.w, mode);
      y[row * s.q + j] = from < 0 ? T{0} : in[from];
    }
  }
}

// The places of the padded axis that hold pixel i: the ranges [begin, end) in rising order.
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

template <class T>
__global__ void pad_gradient_rows(const T* dy, PadSizes s, PadMode mode, T* dx, std::int64_t rows) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.y;
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
       row < rows; row += step) {
    const std::int64_t plane = row / s.h;
    const Places down = places_of(row - plane * s.h, s.h, s.top, s.p, mode);
    const T* const in = dy + plane * s.p * s.q;
    for (std::int64_t j = threadIdx.x; j < s.w; j += blockDim.x) {
      const Places across = places_of(j, s.w, s.left, s.q, mode);
      T sum = 0;
      for (int a = 0; a < 3; ++a) {
        for (std::int64_t p = down.begin[a]; p < down.end[a]; ++p) {
          for (int b = 0; b < 3; ++b) {
            for (std::int64_t q = across.begin[b]; q < across.end[b]; ++q) sum += in[p * s.q + q];
          }
        }
      }
      dx[row * s.w + j] = sum;
    }
  }
}

LaunchShape rows_of(std::int64_t rows, std::int64_t width) {
  unsigned along = 32;
  while (along < width && along < 256) along *= 2;
  const unsigned high = 256 / along;
  LaunchShape shape = grid_for(ceil_div(rows, high), 1);
  shape.block = dim3(along, high);
  return shape;
}

PadSizes sizes_of(const Shape& x, const Shape& y, const Padding2d& padding) {
  return {x[2], x[3], y[2], y[3], padding.top, padding.left};
}

template <class T>
void pad_typed(const Tensor& x, const Padding2d& padding, PadMode mode, const Tensor& y) {
  const std::int64_t rows = y.dim(0) * y.dim(1) * y.dim(2);
  launch(pad_rows<T>, rows_of(rows, y.dim(3)), x.data<T>(), sizes_of(x.shape(), y.shape(), padding),
         mode, y.data<T>(), rows);
}
template <class T>
void pad_gradient_typed(const Tensor& dy, const Padding2d& padding, PadMode mode,
                        const Tensor& dx) {
  const std::int64_t rows = dx.dim(0) * dx.dim(1) * dx.dim(2);
  launch(pad_gradient_rows<T>, rows_of(rows, dx.dim(3)), dy.data<T>(),
         sizes_of(dx.shape(), dy.shape(), padding), mode, dx.data<T>(), rows);
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
