// SPDX-License-Identifier: Apache-2.0
// layer_norm_simd.cpp: layer norm of some pixels, in f32.
//
// Method    planes (NCHW): a lane holds a pixel, so that each channel is one load. Four vectors of
//           pixels pass the channels three times: for the mean, for the variance around the mean,
//           and for y. The second and third pass find the channels in the cache. rows (NCHW16c and
//           [N,F]): a lane holds a channel
// Numerics  at most 32 terms per lane are added in float before they are added to the total. The
//           terms of dweight and dbias are added in double for each tile
#include "layers/norm/layer_norm_simd.h"

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

constexpr int64_t kFold = 32;  // terms of a float sum
constexpr int kTile = 4;       // vectors of pixels
constexpr int kChains = 4;     // independent sums of a row

// ---- planes: a lane holds a pixel

// The pixels of a tile: kVectors vectors, of which the last one has `last` lanes.
template <int kVectors>
struct Tile {
  int64_t channels, stride;
  int last;
  CONVSCOPE_INLINE Vec get(const float* p, int v) const {
    return v + 1 < kVectors ? load(p + v * kLanes) : load_first(p + v * kLanes, last);
  }
  CONVSCOPE_INLINE void put(float* p, int v, Vec a) const {
    v + 1 < kVectors ? store(p + v * kLanes, a) : store_first(p + v * kLanes, a, last);
  }
  // Calls add(c, part) for all channels, and adds the parts to `total`.
  template <int kSums, class Add>
  CONVSCOPE_INLINE void sum_channels(Vec (&total)[kSums], const Add& add) const {
    for (Vec& t : total) t = zero();
    for (int64_t begin = 0; begin < channels; begin += kFold) {
      const int64_t end = channels < begin + kFold ? channels : begin + kFold;
      Vec part[kSums];
      for (Vec& p : part) p = zero();
      for (int64_t c = begin; c < end; ++c) add(c, part);
      for (int i = 0; i < kSums; ++i) total[i] = total[i] + part[i];
    }
  }
};

template <int kVectors>
CONVSCOPE_INLINE void tile_forward(const Tile<kVectors>& tile, const float* x, const float* weight,
                                   const float* bias, float eps, float* y, float* mean,
                                   float* inverse) {
  const Vec share = broadcast(1.0f / static_cast<float>(tile.channels));
  Vec m[kVectors], r[kVectors];
  tile.sum_channels(
      m, [&](int64_t c, Vec(&part)[kVectors]) __attribute__((always_inline)) {
        for (int v = 0; v < kVectors; ++v) part[v] = part[v] + tile.get(x + c * tile.stride, v);
      });
  for (Vec& one : m) one = one * share;
  tile.sum_channels(
      r, [&](int64_t c, Vec(&part)[kVectors]) __attribute__((always_inline)) {
        for (int v = 0; v < kVectors; ++v) {
          const Vec d = tile.get(x + c * tile.stride, v) - m[v];
          part[v] = fma(d, d, part[v]);
        }
      });
  for (int v = 0; v < kVectors; ++v) {
    r[v] = broadcast(1.0f) / sqrt(fma(r[v], share, broadcast(eps)));
    if (mean == nullptr) continue;
    tile.put(mean, v, m[v]);
    tile.put(inverse, v, r[v]);
  }
  for (int64_t c = 0; c < tile.channels; ++c) {
    const Vec w = broadcast(weight[c]), b = broadcast(bias[c]);
    for (int v = 0; v < kVectors; ++v) {
      const Vec u = (tile.get(x + c * tile.stride, v) - m[v]) * r[v];
      tile.put(y + c * tile.stride, v, fma(u, w, b));
    }
  }
}

// The lanes after the last pixel of a tile add 0 to the sums, because dy is 0 there.
template <int kVectors>
CONVSCOPE_INLINE void tile_gradient(const Tile<kVectors>& tile, const float* dy, const float* x,
                                    const float* weight, const float* mean, const float* inverse,
                                    float* dx, double* sums) {
  Vec m[kVectors], r[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    m[v] = tile.get(mean, v);
    r[v] = tile.get(inverse, v);
  }
  const auto normed = [&](int64_t c, int v) __attribute__((always_inline)) {
    return (tile.get(x + c * tile.stride, v) - m[v]) * r[v];
  };
  Vec total[2 * kVectors];  // of g, and of g u
  tile.sum_channels(
      total, [&](int64_t c, Vec(&part)[2 * kVectors]) __attribute__((always_inline)) {
        const Vec w = broadcast(weight[c]);
        Vec weight_sum = zero(), bias_sum = zero();
        for (int v = 0; v < kVectors; ++v) {
          const Vec d = tile.get(dy + c * tile.stride, v);
          const Vec du = d * normed(c, v);
          bias_sum = bias_sum + d;
          weight_sum = weight_sum + du;
          part[v] = fma(d, w, part[v]);
          part[kVectors + v] = fma(du, w, part[kVectors + v]);
        }
        sums[c] += static_cast<double>(sum(weight_sum));
        sums[tile.channels + c] += static_cast<double>(sum(bias_sum));
      });
  if (dx == nullptr) return;
  const Vec share = broadcast(1.0f / static_cast<float>(tile.channels));
  for (Vec& t : total) t = t * share;
  for (int64_t c = 0; c < tile.channels; ++c) {
    const Vec w = broadcast(weight[c]);
    for (int v = 0; v < kVectors; ++v) {
      const Vec g = tile.get(dy + c * tile.stride, v) * w;
      tile.put(dx + c * tile.stride, v,
               ((g - total[v]) - normed(c, v) * total[kVectors + v]) * r[v]);
    }
  }
}

// Calls body(first pixel, tile) for tiles of four vectors, and of one at the end.
template <class Body>
CONVSCOPE_INLINE void for_tiles(const PixelPlaces& at, int64_t count, const Body& body) {
  int64_t i = 0;
  while (i < count) {
    const int64_t left = count - i;
    const int last = static_cast<int>(left % kLanes == 0 ? kLanes : left % kLanes);
    if (left > (kTile - 1) * kLanes) {
      const bool whole = left >= kTile * kLanes;
      body(i, Tile<kTile>{at.channels, at.stride, whole ? kLanes : last});
      i += kTile * kLanes;
    } else {
      body(i, Tile<1>{at.channels, at.stride, left >= kLanes ? kLanes : last});
      i += kLanes;
    }
  }
}

void planes(const PixelPlaces& at, int64_t count, const float* x, const float* weight,
            const float* bias, float eps, float* y, float* mean, float* inverse) {
  for_tiles(at, count, [&](int64_t i, const auto& tile) {
    tile_forward(tile, x + i, weight, bias, eps, y + i, mean == nullptr ? nullptr : mean + i,
                 inverse == nullptr ? nullptr : inverse + i);
  });
}

void planes_gradient(const PixelPlaces& at, int64_t count, const float* dy, const float* x,
                     const float* weight, const float* mean, const float* inverse, float* dx,
                     double* sums, float*) {
  for_tiles(at, count, [&](int64_t i, const auto& tile) {
    tile_gradient(tile, dy + i, x + i, weight, mean + i, inverse + i,
                  dx == nullptr ? nullptr : dx + i, sums);
  });
}

// ---- rows: a lane holds a channel

// Calls body(c, offset, lanes, chain) for the vectors of a pixel.
template <class Body>
CONVSCOPE_INLINE void for_vectors(const PixelPlaces& at, const Body& body) {
  int chain = 0;
  int64_t offset = 0, in_block = 0;
  for (int64_t c = 0; c < at.channels; c += kLanes) {
    const int64_t left = at.channels - c;
    body(c, offset + in_block, left < kLanes ? static_cast<int>(left) : kLanes, chain);
    chain = (chain + 1) % kChains;
    in_block += kLanes;
    if (in_block >= at.width) {
      in_block = 0;
      offset += at.stride;
    }
  }
}

CONVSCOPE_INLINE float sum_of(const Vec (&part)[kChains]) {
  return sum((part[0] + part[1]) + (part[2] + part[3]));
}

// Sets the lanes of NCHW16c after the last channel to 0.
CONVSCOPE_INLINE void clear_unused(const PixelPlaces& at, float* y) {
  if (at.width != 16 || at.step != 16) return;
  const int64_t used = at.channels % 16;
  float* const block = y + at.channels / 16 * at.stride;
  for (int64_t lane = used; used != 0 && lane < 16; ++lane) block[lane] = 0;
}

// Stores a - s in used lanes and 0 in the others, so that sums of squares are right.
CONVSCOPE_INLINE Vec distance(Vec a, float s, int lanes) {
  float from[kLanes];
  for (int l = 0; l < kLanes; ++l) from[l] = l < lanes ? s : 0.0f;
  return a - load(from);
}

void rows(const PixelPlaces& at, int64_t count, const float* x, const float* weight,
          const float* bias, float eps, float* y, float* mean, float* inverse) {
  const float share = 1.0f / static_cast<float>(at.channels);
  for (int64_t i = 0; i < count; ++i, x += at.step, y += at.step) {
    Vec part[kChains];
    for (Vec& p : part) p = zero();
    for_vectors(
        at, [&](int64_t, int64_t offset, int lanes, int chain) __attribute__((always_inline)) {
          part[chain] = part[chain] + load_first(x + offset, lanes);
        });
    const float m = sum_of(part) * share;
    for (Vec& p : part) p = zero();
    for_vectors(
        at, [&](int64_t, int64_t offset, int lanes, int chain) __attribute__((always_inline)) {
          const Vec d = lanes == kLanes ? load(x + offset) - broadcast(m)
                                        : distance(load_first(x + offset, lanes), m, lanes);
          part[chain] = fma(d, d, part[chain]);
        });
    const float r = 1.0f / __builtin_sqrtf(sum_of(part) * share + eps);
    if (mean != nullptr) {
      mean[i] = m;
      inverse[i] = r;
    }
    for_vectors(
        at, [&](int64_t c, int64_t offset, int lanes, int) __attribute__((always_inline)) {
          const Vec u = (load_first(x + offset, lanes) - broadcast(m)) * broadcast(r);
          store_first(y + offset,
                      fma(u, load_first(weight + c, lanes), load_first(bias + c, lanes)), lanes);
        });
    clear_unused(at, y);
  }
}

// Adds the float sums of some pixels to the double sums.
CONVSCOPE_INLINE void fold(int64_t channels, float* rest, double* sums) {
  for (int64_t c = 0; c < 2 * channels; ++c) {
    sums[c] += static_cast<double>(rest[c]);
    rest[c] = 0;
  }
}

void rows_gradient(const PixelPlaces& at, int64_t count, const float* dy, const float* x,
                   const float* weight, const float* mean, const float* inverse, float* dx,
                   double* sums, float* rest) {
  const float share = 1.0f / static_cast<float>(at.channels);
  for (int64_t c = 0; c < 2 * at.channels; ++c) rest[c] = 0;
  for (int64_t i = 0; i < count; ++i, x += at.step, dy += at.step) {
    const Vec m = broadcast(mean[i]), r = broadcast(inverse[i]);
    Vec part[kChains], part_u[kChains];
    for (int k = 0; k < kChains; ++k) part[k] = part_u[k] = zero();
    for_vectors(
        at, [&](int64_t c, int64_t offset, int lanes, int chain) __attribute__((always_inline)) {
          const Vec d = load_first(dy + offset, lanes);
          const Vec du = d * ((load_first(x + offset, lanes) - m) * r);
          const Vec w = load_first(weight + c, lanes);
          part[chain] = fma(d, w, part[chain]);
          part_u[chain] = fma(du, w, part_u[chain]);
          store_first(rest + c, load_first(rest + c, lanes) + du, lanes);
          float* const bias_sum = rest + at.channels + c;
          store_first(bias_sum, load_first(bias_sum, lanes) + d, lanes);
        });
    if ((i + 1) % kFold == 0) fold(at.channels, rest, sums);
    if (dx == nullptr) continue;
    const Vec g_mean = broadcast(sum_of(part) * share);
    const Vec gu_mean = broadcast(sum_of(part_u) * share);
    float* const to = dx + i * at.step;
    for_vectors(
        at, [&](int64_t c, int64_t offset, int lanes, int) __attribute__((always_inline)) {
          const Vec g = load_first(dy + offset, lanes) * load_first(weight + c, lanes);
          const Vec u = (load_first(x + offset, lanes) - m) * r;
          store_first(to + offset, ((g - g_mean) - u * gu_mean) * r, lanes);
        });
    clear_unused(at, to);
  }
  fold(at.channels, rest, sums);
}

}  // namespace
constexpr LayerNormKernels kLayerNorm{.planes = planes,
                                      .rows = rows,
                                      .planes_gradient = planes_gradient,
                                      .rows_gradient = rows_gradient};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(layer_norm_kernels, convscope::CONVSCOPE_ISA::kLayerNorm)
