// SPDX-License-Identifier: Apache-2.0
// pool2d_tiled_cuda.cu: pools at the speed of memory.
//
// Method    2x2 at stride 2 over even sides: the planes of a batch are treated as one tall image,
//           so a thread finds its two windows with one division, and reads or writes two rows of 16
//           bytes. 3x3 at stride 2, padding 1, backward: only window (p,q) and its neighbours to
//           the right, below and diagonally cover the pixels (2p,2q) to (2p+1,2q+1), so a thread
//           writes these four pixels from four windows. Mean of a plane: a warp adds one plane,
//           with 16 bytes for each lane at a time.
// Numerics  the same additions in the same order as pool2d_cuda.cu; means of planes in double
#include "framework/cuda/map.cuh"
#include "layers/pool2d/pool2d_tiled.cuh"

namespace convscope {
namespace {

using std::uint8_t;

struct Window2x2 {
  std::int64_t pairs;  // of windows, in all planes
  unsigned across;     // pairs in a row
};

// The position in x of the two windows of a thread, and the distance to the row below.
struct PlaceOfPair {
  std::int64_t above;
  std::int64_t width;
};
__device__ PlaceOfPair place_of(const Window2x2& s, std::int64_t pair) {
  const std::int64_t row = pair / s.across;
  const auto column = pair - row * s.across;
  const std::int64_t width = 4 * static_cast<std::int64_t>(s.across);
  return {2 * row * width + 4 * column, width};
}

// Finds the first maximum of a b / c d; NaN wins.
__device__ void largest(float a, float b, float c, float d, float& best, uint8_t& tap) {
  best = a;
  tap = 0;
  const auto look = [&](float value, uint8_t at) {
    if (value > best || value != value) {
      best = value;
      tap = at;
    }
  };
  look(b, 1);
  look(c, 2);
  look(d, 3);
}

__global__ void __launch_bounds__(kThreads)
    max_pairs(const float* x, Window2x2 s, float* y, uint8_t* taps) {
  for (std::int64_t pair = global_thread(); pair < s.pairs; pair += global_threads()) {
    const PlaceOfPair at = place_of(s, pair);
    const auto up = *reinterpret_cast<const Pack<float, 4>*>(x + at.above);
    const auto down = *reinterpret_cast<const Pack<float, 4>*>(x + at.above + at.width);
    Pack<float, 2> out;
    Pack<uint8_t, 2> tap;
    largest(up.v[0], up.v[1], down.v[0], down.v[1], out.v[0], tap.v[0]);
    largest(up.v[2], up.v[3], down.v[2], down.v[3], out.v[1], tap.v[1]);
    reinterpret_cast<Pack<float, 2>*>(y)[pair] = out;
    if (taps != nullptr) reinterpret_cast<Pack<uint8_t, 2>*>(taps)[pair] = tap;
  }
}

__global__ void __launch_bounds__(kThreads)
    max_gradient_pairs(const float* dy, const uint8_t* taps, Window2x2 s, float* dx) {
  for (std::int64_t pair = global_thread(); pair < s.pairs; pair += global_threads()) {
    const PlaceOfPair at = place_of(s, pair);
    const auto g = reinterpret_cast<const Pack<float, 2>*>(dy)[pair];
    const auto tap = reinterpret_cast<const Pack<uint8_t, 2>*>(taps)[pair];
    Pack<float, 4> up, down;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      up.v[i] = tap.v[i / 2] == i % 2 ? g.v[i / 2] : 0.0f;
      down.v[i] = tap.v[i / 2] == 2 + i % 2 ? g.v[i / 2] : 0.0f;
    }
    *reinterpret_cast<Pack<float, 4>*>(dx + at.above) = up;
    *reinterpret_cast<Pack<float, 4>*>(dx + at.above + at.width) = down;
  }
}

__global__ void __launch_bounds__(kThreads) avg_pairs(const float* x, Window2x2 s, float* y) {
  for (std::int64_t pair = global_thread(); pair < s.pairs; pair += global_threads()) {
    const PlaceOfPair at = place_of(s, pair);
    const auto up = *reinterpret_cast<const Pack<float, 4>*>(x + at.above);
    const auto down = *reinterpret_cast<const Pack<float, 4>*>(x + at.above + at.width);
    Pack<float, 2> out;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      out.v[i] = ((up.v[2 * i] + up.v[2 * i + 1]) + (down.v[2 * i] + down.v[2 * i + 1])) * 0.25f;
    }
    reinterpret_cast<Pack<float, 2>*>(y)[pair] = out;
  }
}

__global__ void __launch_bounds__(kThreads)
    avg_gradient_pairs(const float* dy, Window2x2 s, float* dx) {
  for (std::int64_t pair = global_thread(); pair < s.pairs; pair += global_threads()) {
    const PlaceOfPair at = place_of(s, pair);
    const auto g = reinterpret_cast<const Pack<float, 2>*>(dy)[pair];
    Pack<float, 4> row;
#pragma unroll
    for (int i = 0; i < 4; ++i) row.v[i] = g.v[i / 2] * 0.25f;
    *reinterpret_cast<Pack<float, 4>*>(dx + at.above) = row;
    *reinterpret_cast<Pack<float, 4>*>(dx + at.above + at.width) = row;
  }
}

struct Window3x3 {
  std::int64_t windows;  // in all planes
  unsigned p, q, h, w;
};

__global__ void __launch_bounds__(kThreads)
    max_gradient_quads(const float* dy, const uint8_t* taps, Window3x3 s, float* dx) {
  for (std::int64_t window = global_thread(); window < s.windows; window += global_threads()) {
    const std::int64_t row = window / s.q;
    const auto q = static_cast<unsigned>(window - row * s.q);
    const std::int64_t plane = row / s.p;
    const auto p = static_cast<unsigned>(row - plane * s.p);
    const bool right = q + 1 < s.q;
    const bool below = p + 1 < s.p;
    // The thread computes 2x2 pixels of dx, which four windows can cover: this window, and its
    // neighbours to the right, below, and below to the right. A missing window has tap 255, which
    // matches no pixel.
    const std::int64_t at[4] = {window, window + 1, window + s.q, window + s.q + 1};
    const bool there[4] = {true, right, below, right && below};
    float g[4];
    int tap[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      g[i] = there[i] ? dy[at[i]] : 0.0f;
      tap[i] = there[i] ? taps[at[i]] : 255;
    }
    const auto share = [&](int i, int of) { return tap[i] == of ? g[i] : 0.0f; };
    const float out[4] = {share(0, 4), share(0, 5) + share(1, 3), share(0, 7) + share(2, 1),
                          ((share(0, 8) + share(1, 6)) + share(2, 2)) + share(3, 0)};
    float* const to = dx + (plane * s.h + 2 * p) * s.w + 2 * q;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (2 * p + static_cast<unsigned>(i) >= s.h) break;
      if (s.w % 2 == 0) {
        *reinterpret_cast<Pack<float, 2>*>(to + i * s.w) = {out[2 * i], out[2 * i + 1]};
      } else {
        to[i * s.w] = out[2 * i];
        if (2 * q + 1 < s.w) to[i * s.w + 1] = out[2 * i + 1];
      }
    }
  }
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    mean_warps(const float* x, float* y, std::int64_t planes, int pixels) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t plane = global_thread() / 32;
  double sum = 0;
  if (plane < planes) {
    const float* const from = x + plane * pixels;
#pragma unroll 4
    for (int i = lane * kWidth; i < pixels; i += 32 * kWidth) {
      const auto p = *reinterpret_cast<const Pack<float, kWidth>*>(from + i);
#pragma unroll
      for (int l = 0; l < kWidth; ++l) sum += static_cast<double>(p.v[l]);
    }
  }
  sum = warp_sum(sum);
  if (plane < planes && lane == 0) y[plane] = static_cast<float>(sum) / static_cast<float>(pixels);
}

template <int kWidth>
__global__ void __launch_bounds__(kThreads)
    spread_means(const float* dy, float* dx, std::int64_t packs, unsigned packs_of_plane,
                 float pixels) {
  for (std::int64_t pack = global_thread(); pack < packs; pack += global_threads()) {
    const bool small = packs < (std::int64_t{1} << 32);
    const float value =
        dy[small ? static_cast<std::uint32_t>(pack) / packs_of_plane : pack / packs_of_plane] /
        pixels;
    Pack<float, kWidth> out;
#pragma unroll
    for (int l = 0; l < kWidth; ++l) out.v[l] = value;
    reinterpret_cast<Pack<float, kWidth>*>(dx)[pack] = out;
  }
}

bool is_2x2(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  return x.dtype() == DType::f32 && window.kernel_h == 2 && window.kernel_w == 2 &&
         window.stride_h == 2 && window.stride_w == 2 && window.pad_h == 0 && window.pad_w == 0 &&
         2 * y.dim(2) == x.dim(2) && 2 * y.dim(3) == x.dim(3) && y.dim(3) % 2 == 0 &&
         is_aligned(x.raw_data(), 16) && is_aligned(y.raw_data(), 8);
}
bool has_pairs_of_taps(const Tensor& taps) {
  return !taps.defined() || (taps.dtype() == DType::u8 && is_aligned(taps.raw_data(), 2));
}
uint8_t* bytes(const Tensor& taps) { return taps.defined() ? taps.data<uint8_t>() : nullptr; }

Window2x2 pairs_in(const Tensor& y) { return {y.numel() / 2, static_cast<unsigned>(y.dim(3) / 2)}; }

bool is_3x3(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  return x.dtype() == DType::f32 && window.kernel_h == 3 && window.kernel_w == 3 &&
         window.stride_h == 2 && window.stride_w == 2 && window.pad_h == 1 && window.pad_w == 1 &&
         y.dim(2) == (x.dim(2) + 1) / 2 && y.dim(3) == (x.dim(3) + 1) / 2 && x.dim(2) < (1 << 30) &&
         x.dim(3) < (1 << 30) && is_aligned(x.raw_data(), 8);
}

}  // namespace

bool max_pool_tiled(const Tensor& x, const Pool2dWindow& window, const Tensor& y,
                    const Tensor& taps) {
  if (!is_2x2(x, window, y) || !has_pairs_of_taps(taps)) return false;
  const Window2x2 s = pairs_in(y);
  launch(max_pairs, grid_of_packs(s.pairs), x.data<float>(), s, y.data<float>(), bytes(taps));
  return true;
}

bool max_pool_tiled_gradient(const Tensor& dy, const Tensor& taps, const Pool2dWindow& window,
                             const Tensor& dx) {
  if (is_2x2(dx, window, dy) && has_pairs_of_taps(taps)) {
    const Window2x2 s = pairs_in(dy);
    launch(max_gradient_pairs, grid_of_packs(s.pairs), dy.data<float>(), bytes(taps), s,
           dx.data<float>());
    return true;
  }
  if (!is_3x3(dx, window, dy) || taps.dtype() != DType::u8) return false;
  const Window3x3 s{dy.numel(), static_cast<unsigned>(dy.dim(2)), static_cast<unsigned>(dy.dim(3)),
                    static_cast<unsigned>(dx.dim(2)), static_cast<unsigned>(dx.dim(3))};
  launch(max_gradient_quads, grid_of_packs(s.windows), dy.data<float>(), bytes(taps), s,
         dx.data<float>());
  return true;
}

bool avg_pool_tiled(const Tensor& x, const Pool2dWindow& window, const Tensor& y) {
  if (!is_2x2(x, window, y)) return false;
  const Window2x2 s = pairs_in(y);
  launch(avg_pairs, grid_of_packs(s.pairs), x.data<float>(), s, y.data<float>());
  return true;
}

bool avg_pool_tiled_gradient(const Tensor& dy, const Pool2dWindow& window, const Tensor& dx) {
  if (!is_2x2(dx, window, dy)) return false;
  const Window2x2 s = pairs_in(dy);
  launch(avg_gradient_pairs, grid_of_packs(s.pairs), dy.data<float>(), s, dx.data<float>());
  return true;
}

bool plane_means(const Tensor& x, const Tensor& y) {
  const std::int64_t pixels = x.dim(2) * x.dim(3);
  if (x.dtype() != DType::f32 || y.dim(2) * y.dim(3) != 1 || pixels >= (1 << 30)) return false;
  const bool packed = pixels % 4 == 0 && is_aligned(x.raw_data(), 16);
  launch(packed ? mean_warps<4> : mean_warps<1>,
         {.grid = dim3(static_cast<unsigned>(ceil_div(y.numel() * 32, kThreads))),
          .block = dim3(kThreads)},
         x.data<float>(), y.data<float>(), y.numel(), static_cast<int>(pixels));
  return true;
}

bool plane_means_gradient(const Tensor& dy, const Tensor& dx) {
  const std::int64_t pixels = dx.dim(2) * dx.dim(3);
  if (dx.dtype() != DType::f32 || dy.dim(2) * dy.dim(3) != 1 || pixels >= (1 << 30)) return false;
  const bool packed = pixels % 4 == 0 && is_aligned(dx.raw_data(), 16);
  const std::int64_t packs = packed ? dx.numel() / 4 : dx.numel();
  launch(packed ? spread_means<4> : spread_means<1>, grid_of_packs(packs), dy.data<float>(),
         dx.data<float>(), packs, static_cast<unsigned>(packed ? pixels / 4 : pixels),
         static_cast<float>(pixels));
  return true;
}

}  // namespace convscope
