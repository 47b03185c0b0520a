// SPDX-License-Identifier: Apache-2.0
// pool2d_half_cuda.cu: pooling of fp16/bf16 or f32 images in NHWC. A thread processes 16 bytes of
// a pixel: eight channels in 16 bits or four in f32.
//
// Method    In the forward pass a thread walks over the window of one output pixel. In the backward
//           pass a thread gathers: it adds to a pixel of x the shares of the windows that contain
//           the pixel, in reading order. So no two threads write to one pixel. Neighbouring threads
//           have neighbouring channels, so all accesses are whole cache lines.
// Numerics  sums in f32 in reading order, rounded once. The largest number needs no rounding. Lanes
//           after the last channel are 0 in the input, and become 0 in the result
// Read next pool2d_cuda.cu, the same for planes
#include "framework/cuda/half_piece.cuh"
#include "layers/pool2d/pool2d_half.cuh"

namespace convscope {
namespace {

struct Range {
  int begin, end;
};
__host__ __device__ inline int least(int a, int b) { return a < b ? a : b; }
__host__ __device__ inline int most(int a, int b) { return a > b ? a : b; }

// Windows along one axis.
struct Axis {
  int size = 0, windows = 0;
  int kernel = 0, stride = 1, pad = 0;  // kernel 0: adaptive, part p of `windows`
  bool count_include_pad = true;

  __device__ int start(int p) const { return p * stride - pad; }
  // Returns the pixels of window p.
  __device__ Range pixels(int p) const {
    if (kernel == 0) {
      const auto at = static_cast<std::int64_t>(p) * size;
      return {static_cast<int>(at / windows), static_cast<int>(ceil_div(at + size, windows))};
    }
    return {most(0, start(p)), least(start(p) + kernel, size)};
  }
  // Returns the divisor of its mean.
  __device__ int divisor(int p) const {
    if (kernel > 0 && count_include_pad) return least(start(p) + kernel, size + pad) - start(p);
    const Range inside = pixels(p);
    return inside.end - inside.begin;
  }
  // Returns a range that includes all windows with pixel i. In the adaptive case the first or last
  // window of the range may not contain pixel i.
  __device__ Range windows_of(int i) const {
    if (kernel == 0) {
      const auto at = static_cast<std::int64_t>(i) * windows;
      return {static_cast<int>(at / size),
              least(windows, static_cast<int>(ceil_div(at + windows, size)))};
    }
    const int last = i + pad;
    const int first = last - kernel + 1;
    return {first <= 0 ? 0 : ceil_div(first, stride), least(windows, last / stride + 1)};
  }
  __device__ bool holds(int p, int i) const {
    const Range inside = pixels(p);
    return inside.begin <= i && i < inside.end;
  }
};

struct PoolShape {
  int pieces = 1;
  FastDivisor by_pieces, by_width, by_height;  // of the walked images
  Axis high, wide;
  std::int64_t count = 0;  // threads' pieces
};

// `walked` is the shape of the images that are written: y in the forward pass, x in the backward
// pass.
template <class T>
PoolShape sizes_of(const Shape& x, const Shape& y, const Pool2dWindow* window,
                   const Shape& walked) {
  const auto narrow = [](std::int64_t size) { return static_cast<int>(size); };
  PoolShape out{.pieces = narrow(x[4] / kLanesOf<T>),
            .by_pieces = FastDivisor(narrow(x[4] / kLanesOf<T>)),
            .by_width = FastDivisor(narrow(walked[3])),
            .by_height = FastDivisor(narrow(walked[2])),
            .high = {.size = narrow(x[2]), .windows = narrow(y[2])},
            .wide = {.size = narrow(x[3]), .windows = narrow(y[3])},
            .count = walked.numel() / kLanesOf<T>};
  CONVSCOPE_CHECK(out.count < (std::int64_t{1} << 31) && x.numel() / kLanesOf<T> < (1ll << 31),
                  "pool2d", "expected fewer than 2^31 pieces of 16 bytes, because their places ",
                  "have 32 bits, got ", out.count);
  if (window == nullptr) return out;
  const auto set = [&](Axis& axis, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
    axis.kernel = narrow(kernel);
    axis.stride = narrow(stride);
    axis.pad = narrow(pad);
    axis.count_include_pad = window->count_include_pad;
  };
  set(out.high, window->kernel_h, window->stride_h, window->pad_h);
  set(out.wide, window->kernel_w, window->stride_w, window->pad_w);
  return out;
}

struct Place {
  int piece, w, h, n;
};
__device__ inline Place place_of(const PoolShape& z, std::int64_t at) {
  const int pixel = z.by_pieces.divide(static_cast<int>(at));
  const int line = z.by_width.divide(pixel);
  const int n = z.by_height.divide(line);
  return {static_cast<int>(at) - pixel * z.pieces, pixel - line * z.by_width.d,
          line - n * z.by_height.d, n};
}
// Returns a piece of the images with these axes' `sizes`.
__device__ inline std::int64_t piece_at(const PoolShape& z, int n, int height, int h, int width,
                                        int w, int piece) {
  return ((static_cast<std::int64_t>(n) * height + h) * width + w) * z.pieces + piece;
}

template <class Body>
__device__ void for_pieces(const PoolShape& z, const Body& body) {
  let_next_kernel_start();
  wait_for_previous_kernel();
  for (std::int64_t at = global_thread(); at < z.count; at += global_threads()) {
    body(at, place_of(z, at));
  }
}

template <class Tap, int kLanes>
struct alignas(kLanes * sizeof(Tap) < 16 ? kLanes * sizeof(Tap) : 16) Taps {
  Tap v[kLanes];
};
template <class T, class Tap>
using TapsOf = Taps<Tap, kLanesOf<T>>;

template <class T, class Tap>
__global__ void __launch_bounds__(kThreads)
    max_forward(const uint4* x, PoolShape z, uint4* y, TapsOf<T, Tap>* taps) {
  for_pieces(z, [&](std::int64_t to, const Place& at) {
    const Range rows = z.high.pixels(at.h), columns = z.wide.pixels(at.w);
    const int top = z.high.start(at.h), left = z.wide.start(at.w);
    float best[kLanesOf<T>];
    TapsOf<T, Tap> tap;
    const auto load = [&](int i, int j, float(&v)[kLanesOf<T>]) {
      floats_of_piece<T>(x[piece_at(z, at.n, z.high.size, i, z.wide.size, j, at.piece)], v);
    };
    load(rows.begin, columns.begin, best);
#pragma unroll
    for (int l = 0; l < kLanesOf<T>; ++l) {
      tap.v[l] = static_cast<Tap>((rows.begin - top) * z.wide.kernel + columns.begin - left);
    }
    for (int i = rows.begin; i < rows.end; ++i) {
      for (int j = columns.begin; j < columns.end; ++j) {
        float v[kLanesOf<T>];
        load(i, j, v);
        const auto here = static_cast<Tap>((i - top) * z.wide.kernel + j - left);
#pragma unroll
        for (int l = 0; l < kLanesOf<T>; ++l) {
          const bool better = v[l] > best[l] || v[l] != v[l];  // the first maximum, the last NaN
          best[l] = better ? v[l] : best[l];
          tap.v[l] = better ? here : tap.v[l];
        }
      }
    }
    y[to] = piece_of_floats<T>(best);
    if (taps != nullptr) taps[to] = tap;
  });
}

template <class T, class Tap>
__global__ void __launch_bounds__(kThreads)
    max_backward(const uint4* dy, const TapsOf<T, Tap>* taps, PoolShape z, uint4* dx) {
  for_pieces(z, [&](std::int64_t to, const Place& at) {
    const Range down = z.high.windows_of(at.h), across = z.wide.windows_of(at.w);
    float sum[kLanesOf<T>] = {};
    for (int p = down.begin; p < down.end; ++p) {
      for (int q = across.begin; q < across.end; ++q) {
        const int tap = (at.h - z.high.start(p)) * z.wide.kernel + at.w - z.wide.start(q);
        const std::int64_t from = piece_at(z, at.n, z.high.windows, p, z.wide.windows, q, at.piece);
        const TapsOf<T, Tap> won = taps[from];
        float v[kLanesOf<T>];
        floats_of_piece<T>(dy[from], v);
#pragma unroll
        for (int l = 0; l < kLanesOf<T>; ++l) {
          if (static_cast<int>(won.v[l]) == tap) sum[l] += v[l];
        }
      }
    }
    dx[to] = piece_of_floats<T>(sum);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) mean_forward(const uint4* x, PoolShape z, uint4* y) {
  for_pieces(z, [&](std::int64_t to, const Place& at) {
    const Range rows = z.high.pixels(at.h), columns = z.wide.pixels(at.w);
    const float factor = 1.0f / (static_cast<float>(z.high.divisor(at.h)) *
                                 static_cast<float>(z.wide.divisor(at.w)));
    float total[kLanesOf<T>] = {};
    for (int i = rows.begin; i < rows.end; ++i) {
      float sum[kLanesOf<T>] = {};
#pragma unroll 4
      for (int j = columns.begin; j < columns.end; ++j) {
        float v[kLanesOf<T>];
        floats_of_piece<T>(x[piece_at(z, at.n, z.high.size, i, z.wide.size, j, at.piece)], v);
#pragma unroll
        for (int l = 0; l < kLanesOf<T>; ++l) sum[l] += v[l];
      }
#pragma unroll
      for (int l = 0; l < kLanesOf<T>; ++l) total[l] += sum[l];
    }
#pragma unroll
    for (int l = 0; l < kLanesOf<T>; ++l) total[l] *= factor;
    y[to] = piece_of_floats<T>(total);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads) mean_backward(const uint4* dy, PoolShape z, uint4* dx) {
  for_pieces(z, [&](std::int64_t to, const Place& at) {
    const Range down = z.high.windows_of(at.h), across = z.wide.windows_of(at.w);
    float sum[kLanesOf<T>] = {};
    for (int p = down.begin; p < down.end; ++p) {
      if (!z.high.holds(p, at.h)) continue;
      for (int q = across.begin; q < across.end; ++q) {
        if (!z.wide.holds(q, at.w)) continue;
        const float factor =
            1.0f / (static_cast<float>(z.high.divisor(p)) * static_cast<float>(z.wide.divisor(q)));
        float v[kLanesOf<T>];
        floats_of_piece<T>(dy[piece_at(z, at.n, z.high.windows, p, z.wide.windows, q, at.piece)],
                           v);
#pragma unroll
        for (int l = 0; l < kLanesOf<T>; ++l) sum[l] += v[l] * factor;
      }
    }
    dx[to] = piece_of_floats<T>(sum);
  });
}

// ---- launches ----

const uint4* pieces(const Tensor& tensor) { return static_cast<const uint4*>(tensor.raw_data()); }
uint4* pieces_to(const Tensor& tensor) { return static_cast<uint4*>(tensor.raw_data()); }

LaunchShape shape_of(const PoolShape& z) {
  LaunchShape shape = grid_for(z.count);
  shape.overlaps_previous = true;
  return shape;
}

template <class T, class Tap>
void max_forward_typed(const Tensor& x, const PoolShape& z, const Tensor& y, const Tensor& taps) {
  launch(max_forward<T, Tap>, shape_of(z), pieces(x), z, pieces_to(y),
         taps.defined() ? static_cast<TapsOf<T, Tap>*>(taps.raw_data()) : nullptr);
}

template <class T, class Tap>
void max_backward_typed(const Tensor& dy, const Tensor& taps, const PoolShape& z,
                        const Tensor& dx) {
  launch(max_backward<T, Tap>, shape_of(z), pieces(dy),
         static_cast<const TapsOf<T, Tap>*>(taps.raw_data()), z, pieces_to(dx));
}

void mean(const Tensor& x, const Pool2dWindow* window, const Tensor& y) {
  with_stored_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const PoolShape z = sizes_of<T>(x.shape(), y.shape(), window, y.shape());
    launch(mean_forward<T>, shape_of(z), pieces(x), z, pieces_to(y));
  });
}

void mean_gradient(const Tensor& dy, const Pool2dWindow* window, const Tensor& dx) {
  with_stored_type(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const PoolShape z = sizes_of<T>(dx.shape(), dy.shape(), window, dx.shape());
    launch(mean_backward<T>, shape_of(z), pieces(dy), z, pieces_to(dx));
  });
}

}  // namespace

void max_pool_half(const Tensor& x, const Pool2dWindow& window, const Tensor& y,
                     const Tensor& taps) {
  with_stored_type(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const PoolShape z = sizes_of<T>(x.shape(), y.shape(), &window, y.shape());
    if (taps.defined() && taps.dtype() == DType::i32) {
      return max_forward_typed<T, std::int32_t>(x, z, y, taps);
    }
    max_forward_typed<T, std::uint8_t>(x, z, y, taps);
  });
}

void max_pool_half_gradient(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                              const Tensor& dx) {
  with_stored_type(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const PoolShape z = sizes_of<T>(dx.shape(), dy.shape(), &window, dx.shape());
    if (taps.dtype() == DType::i32) return max_backward_typed<T, std::int32_t>(dy, taps, z, dx);
    max_backward_typed<T, std::uint8_t>(dy, taps, z, dx);
  });
}

void avg_pool_half(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  mean(x, &window, y);
}
void avg_pool_half_gradient(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx) {
  mean_gradient(dy, &window, dx);
}
void adaptive_pool_half(const Tensor& x, const Tensor& y) { mean(x, nullptr, y); }
void adaptive_pool_half_gradient(const Tensor& dy, const Tensor& dx) {
  mean_gradient(dy, nullptr, dx);
}

}  // namespace convscope
