// SPDX-License-Identifier: Apache-2.0
// pool2d_nchw16c_cpu.cpp: pooling on images stored as [N,C/16,H,W,16]. Rows are divided among
// threads. Plain loops cover two cases: windows of more than 256 elements, and the gradient of the
// maximum where windows overlap much.
// Read next  pool2d_nchw16c_simd.cpp
#include <algorithm>

#include "framework/parallel.h"
#include "layers/pool2d/pool2d_nchw16c.h"
#include "layers/pool2d/pool2d_nchw16c_simd.h"

namespace convscope {

constinit IsaTable<Nchw16cPoolKernels> nchw16c_pool_kernels;

namespace {

constexpr std::int64_t kBlock = 16;
constexpr std::int64_t kGrain = 1 << 11;  // pixels that one chunk reads and writes

Nchw16cPool sizes_of(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  return {.h = x.dim(2),
          .w = x.dim(3),
          .p = y.dim(2),
          .q = y.dim(3),
          .kernel_h = window.kernel_h,
          .kernel_w = window.kernel_w,
          .stride_h = window.stride_h,
          .stride_w = window.stride_w,
          .pad_h = window.pad_h,
          .pad_w = window.pad_w,
          .count_include_pad = window.count_include_pad};
}

// Calls body(begin, end) over the rows of all blocks of `to`, which are computed from `from`.
template <class Body>
void for_rows(const Tensor& to, const Tensor& from, const Body& body) {
  const std::int64_t blocks = to.dim(0) * to.dim(1);
  const std::int64_t pixels = to.dim(2) * to.dim(3) + from.dim(2) * from.dim(3);
  const std::int64_t row = std::max<std::int64_t>(1, pixels / std::max<std::int64_t>(1, to.dim(2)));
  parallel_for(blocks * to.dim(2), std::max<std::int64_t>(1, kGrain / row), body);
}

// As max_planes() of pool2d_cpu.cpp, for 16 interleaved planes.
void max_by_elements(const Nchw16cPool& v, std::int64_t begin, std::int64_t end, const float* x,
                     float* y, std::int32_t* taps) {
  for (std::int64_t i = begin * v.q * kBlock; i < end * v.q * kBlock; ++i) {
    const std::int64_t row = i / (v.q * kBlock), q = i / kBlock % v.q;
    const float* const image = x + row / v.p * v.h * v.w * kBlock + i % kBlock;
    const std::int64_t top = row % v.p * v.stride_h - v.pad_h, left = q * v.stride_w - v.pad_w;
    const std::int64_t r_begin = std::max<std::int64_t>(0, -top);
    const std::int64_t s_begin = std::max<std::int64_t>(0, -left);
    const std::int64_t r_end = std::min(v.kernel_h, v.h - top);
    const std::int64_t s_end = std::min(v.kernel_w, v.w - left);
    const auto at = [&](std::int64_t r, std::int64_t s) {
      return image[((top + r) * v.w + left + s) * kBlock];
    };
    float best = at(r_begin, s_begin);
    std::int64_t tap = r_begin * v.kernel_w + s_begin;
    for (std::int64_t r = r_begin; r < r_end; ++r) {
      for (std::int64_t s = s_begin; s < s_end; ++s) {
        const float value = at(r, s);
        if (value > best || value != value) {
          best = value;
          tap = r * v.kernel_w + s;
        }
      }
    }
    y[i] = best;
    if (taps != nullptr) taps[i] = static_cast<std::int32_t>(tap);
  }
}

// Adds the gradient of every window to one pixel.
template <class Tap>
void scatter_maxima(const Nchw16cPool& v, std::int64_t block, const float* dy, const Tap* taps,
                    float* dx) {
  float* const image = dx + block * v.h * v.w * kBlock;
  std::fill_n(image, v.h * v.w * kBlock, 0.0f);
  for (std::int64_t p = 0; p < v.p; ++p) {
    for (std::int64_t q = 0; q < v.q; ++q) {
      const std::int64_t at = ((block * v.p + p) * v.q + q) * kBlock;
      for (std::int64_t c = 0; c < kBlock; ++c) {
        const std::int64_t tap = taps[at + c];
        const std::int64_t i = p * v.stride_h - v.pad_h + tap / v.kernel_w;
        const std::int64_t j = q * v.stride_w - v.pad_w + tap % v.kernel_w;
        image[(i * v.w + j) * kBlock + c] += dy[at + c];
      }
    }
  }
}

template <class Tap>
void scatter_all(const Nchw16cPool& v, const Tensor& dy, const Tensor& taps, const Tensor& dx) {
  const Tap* const places = taps.data<Tap>();
  const float* const from = dy.data<float>();
  float* const to = dx.data<float>();
  parallel_chunks(dx.dim(0) * dx.dim(1),
                  [&](std::int64_t block, int) { scatter_maxima(v, block, from, places, to); });
}

}  // namespace

void nchw16c_max_pool(const Tensor& x, const Pool2dWindow& window, const Tensor& y,
                      const Tensor& taps) {
  const Nchw16cPool v = sizes_of(x, window, y);
  const float* const from = x.data<float>();
  float* const to = y.data<float>();
  if (window.kernel_h * window.kernel_w > 256) {
    std::int32_t* const places = taps.defined() ? taps.data<std::int32_t>() : nullptr;
    return for_rows(y, x, [&](std::int64_t begin, std::int64_t end) {
      max_by_elements(v, begin, end, from, to, places);
    });
  }
  std::uint8_t* const places = taps.defined() ? taps.data<std::uint8_t>() : nullptr;
  const auto forward = nchw16c_pool_kernels.get().max_forward;
  for_rows(y, x,
           [&](std::int64_t begin, std::int64_t end) { forward(v, begin, end, from, to, places); });
}

void nchw16c_max_pool_gradient(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                               const Tensor& dx) {
  const Nchw16cPool v = sizes_of(dx, window, dy);
  if (taps.dtype() == DType::i32) return scatter_all<std::int32_t>(v, dy, taps, dx);
  // For each pixel the vector code visits all windows that cover it. The plain loop visits 16
  // numbers for each window, which is faster for large windows that overlap much.
  if (window.kernel_h * window.kernel_w > 4 * kBlock && window.stride_h * window.stride_w <= 4) {
    return scatter_all<std::uint8_t>(v, dy, taps, dx);
  }
  const float* const from = dy.data<float>();
  const std::uint8_t* const places = taps.data<std::uint8_t>();
  float* const to = dx.data<float>();
  const auto backward = nchw16c_pool_kernels.get().max_backward;
  for_rows(dx, dy, [&](std::int64_t begin, std::int64_t end) {
    backward(v, begin, end, from, places, to);
  });
}

namespace {

// Runs one of the kernels for means, which reads `from` and writes `to`.
void run_mean(decltype(Nchw16cPoolKernels::avg_forward) kernel, const Nchw16cPool& v,
              const Tensor& from, const Tensor& to) {
  const float* const read = from.data<float>();
  float* const written = to.data<float>();
  for_rows(to, from,
           [&](std::int64_t begin, std::int64_t end) { kernel(v, begin, end, read, written); });
}

}  // namespace

void nchw16c_avg_pool(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  run_mean(nchw16c_pool_kernels.get().avg_forward, sizes_of(x, window, y), x, y);
}

void nchw16c_avg_pool_gradient(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx) {
  run_mean(nchw16c_pool_kernels.get().avg_backward, sizes_of(dx, window, dy), dy, dx);
}

void nchw16c_adaptive_pool(const Tensor& x, const Tensor& y) {
  run_mean(nchw16c_pool_kernels.get().adaptive_forward, sizes_of(x, {}, y), x, y);
}

void nchw16c_adaptive_pool_gradient(const Tensor& dy, const Tensor& dx) {
  run_mean(nchw16c_pool_kernels.get().adaptive_backward, sizes_of(dx, {}, dy), dy, dx);
}

}  // namespace convscope
