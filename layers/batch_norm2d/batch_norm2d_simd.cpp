// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_simd.cpp: loops of batch norm over the planes of one channel: the sums, and the
// passes that write images.
//
// Method    four vectors are added in parallel, because an add takes 3 to 4 cycles and two can
//           begin in each cycle. After 32 vectors the sums are added up to one double. The rest of
//           a plane, less than a vector, is added one by one
// Numerics  A nearby number (the mean, or the channel's first element) is subtracted from each
//           element, so a mean far from 0 costs no accuracy. A sum of 512 numbers has at most 14
//           roundings, each of 2^-24. So its error is at most 1e-6 times the sum of the magnitudes,
//           and mostly 1e-7
#include "layers/batch_norm2d/batch_norm2d_simd.h"

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

constexpr int kSide = 4;    // vectors in parallel
constexpr int kBlock = 32;  // vectors in a fold

// Calls block(i, vectors) for whole vectors, at most kBlock of them, and one(i) for the rest.
template <class Block, class One>
CONVSCOPE_INLINE void for_plane(int64_t n, const Block& block, const One& one) {
  int64_t i = 0;
  while (i + kLanes <= n) {
    const int64_t left = (n - i) / kLanes;
    const int vectors = left < kBlock ? static_cast<int>(left) : kBlock;
    block(i, vectors);
    i += vectors * kLanes;
  }
  for (; i < n; ++i) one(i);
}

// Adds term(vector) over the vectors at p, p + kLanes, ..., then adds the lanes to one double.
template <class Term>
CONVSCOPE_INLINE double folded(const float* p, int vectors, const Term& add) {
  Vec part[kSide];
#pragma GCC unroll 4
  for (int s = 0; s < kSide; ++s) part[s] = zero();
  int v = 0;
  for (; v + kSide <= vectors; v += kSide) {
#pragma GCC unroll 4
    for (int s = 0; s < kSide; ++s) part[s] = add(part[s], load(p + (v + s) * kLanes));
  }
  for (; v < vectors; ++v) part[0] = add(part[0], load(p + v * kLanes));
  return static_cast<double>(
      convscope::CONVSCOPE_ISA::sum((part[0] + part[1]) + (part[2] + part[3])));
}

double sum(const ChannelPlanes& planes, const float* x, float shift) {
  const Vec from = broadcast(shift);
  double total = 0;
  for (int64_t k = 0; k < planes.count; ++k, x += planes.stride) {
    for_plane(
        planes.n,
        [&](int64_t i, int vectors) {
          total += folded(x + i, vectors, [&](Vec part, Vec v) { return part + (v - from); });
        },
        [&](int64_t i) { total += static_cast<double>(x[i] - shift); });
  }
  return total;
}

double square_sum(const ChannelPlanes& planes, const float* x, float mean) {
  const Vec from = broadcast(mean);
  double total = 0;
  for (int64_t k = 0; k < planes.count; ++k, x += planes.stride) {
    for_plane(
        planes.n,
        [&](int64_t i, int vectors) {
          total += folded(x + i, vectors, [&](Vec part, Vec v) {
            const Vec d = v - from;
            return fma(d, d, part);
          });
        },
        [&](int64_t i) {
          const double d = static_cast<double>(x[i] - mean);
          total += d * d;
        });
  }
  return total;
}

void gradient_sums(const ChannelPlanes& planes, const float* g, const float* x, float mean,
                   double* sum_g, double* sum_g_x) {
  const Vec from = broadcast(mean);
  double total = 0;
  double total_x = 0;
  for (int64_t k = 0; k < planes.count; ++k, x += planes.stride, g += planes.stride) {
    for_plane(
        planes.n,
        [&](int64_t i, int vectors) {
          Vec part[kSide], part_x[kSide];
#pragma GCC unroll 4
          for (int s = 0; s < kSide; ++s) part[s] = part_x[s] = zero();
          const auto add = [&](int s, int v) __attribute__((always_inline)) {
            const Vec gv = load(g + i + v * kLanes);
            part[s] = part[s] + gv;
            part_x[s] = fma(gv, load(x + i + v * kLanes) - from, part_x[s]);
          };
          int v = 0;
          for (; v + kSide <= vectors; v += kSide) {
#pragma GCC unroll 4
            for (int s = 0; s < kSide; ++s) add(s, v + s);
          }
          for (; v < vectors; ++v) add(0, v);
          total += static_cast<double>(
              convscope::CONVSCOPE_ISA::sum((part[0] + part[1]) + (part[2] + part[3])));
          total_x += static_cast<double>(
              convscope::CONVSCOPE_ISA::sum((part_x[0] + part_x[1]) + (part_x[2] + part_x[3])));
        },
        [&](int64_t i) {
          total += static_cast<double>(g[i]);
          total_x += static_cast<double>(g[i]) * static_cast<double>(x[i] - mean);
        });
  }
  *sum_g = total;
  *sum_g_x = total_x;
}

// Calls body(i, count) for each vector of a plane, the last one partly filled.
template <class Body>
CONVSCOPE_INLINE void for_vectors(int64_t n, const Body& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, kLanes);
  if (i < n) body(i, static_cast<int>(n - i));
}
CONVSCOPE_INLINE Vec load_some(const float* p, int count) {
  return count == kLanes ? load(p) : load_first(p, count);
}
CONVSCOPE_INLINE void store_some(float* p, Vec v, int count) {
  count == kLanes ? store(p, v) : store_first(p, v, count);
}

// Returns x <= 0 ? 0 : x, limited to at most `most`. If x is NaN, max returns its second operand,
// so NaN stays NaN. Adding 0 turns -0 into 0.
CONVSCOPE_INLINE Vec curved(Vec x, Vec most) { return bounded_relu(x, most); }

template <bool kResidual, bool kRelu>
void apply_as(const ChannelPlanes& planes, const float* x, float mean, float factor, float shift,
              const float* residual, float most, float* y) {
  const Vec from = broadcast(mean);
  const Vec f = broadcast(factor);
  const Vec s = broadcast(shift);
  const Vec bound = broadcast(most);
  for (int64_t k = 0; k < planes.count; ++k) {
    const int64_t at = k * planes.stride;
    for_vectors(
        planes.n, [&](int64_t i, int count) __attribute__((always_inline)) {
          Vec v = fma(load_some(x + at + i, count) - from, f, s);
          if (kResidual) v = v + load_some(residual + at + i, count);
          store_some(y + at + i, kRelu ? curved(v, bound) : v, count);
        });
  }
}

void apply(const ChannelPlanes& planes, const float* x, float mean, float factor, float shift,
           const float* residual, bool relu, float most, float* y) {
  if (residual == nullptr) {
    relu ? apply_as<false, true>(planes, x, mean, factor, shift, residual, most, y)
         : apply_as<false, false>(planes, x, mean, factor, shift, residual, most, y);
  } else {
    relu ? apply_as<true, true>(planes, x, mean, factor, shift, residual, most, y)
         : apply_as<true, false>(planes, x, mean, factor, shift, residual, most, y);
  }
}

template <bool kBounded>
void mask_as(const ChannelPlanes& planes, const float* dy, const float* y, float most, float* g) {
  const Vec bound = broadcast(most);
  for (int64_t k = 0; k < planes.count; ++k) {
    const int64_t at = k * planes.stride;
    for_vectors(
        planes.n, [&](int64_t i, int count) __attribute__((always_inline)) {
          const Vec at_y = load_some(y + at + i, count);
          Vec kept = keep_where_positive(load_some(dy + at + i, count), at_y);
          if (kBounded) kept = keep_where_positive(kept, bound - at_y);
          store_some(g + at + i, kept, count);
        });
  }
}

void mask(const ChannelPlanes& planes, const float* dy, const float* y, float most, float* g) {
  most < __builtin_inff() ? mask_as<true>(planes, dy, y, most, g)
                          : mask_as<false>(planes, dy, y, most, g);
}

void gradient(const ChannelPlanes& planes, const float* dy, const float* x, float mean, float a,
              float b, float d, float* dx) {
  const Vec va = broadcast(a), vb = broadcast(b), vd = broadcast(d), from = broadcast(mean);
  for (int64_t k = 0; k < planes.count; ++k) {
    const int64_t at = k * planes.stride;
    for_vectors(
        planes.n, [&](int64_t i, int count) __attribute__((always_inline)) {
          const Vec right = fma(vb, load_some(x + at + i, count) - from, vd);
          store_some(dx + at + i, fma(va, load_some(dy + at + i, count), right), count);
        });
  }
}

}  // namespace
constexpr BatchNormKernels kBatchNorm{.sum = sum,
                                      .square_sum = square_sum,
                                      .gradient_sums = gradient_sums,
                                      .apply = apply,
                                      .mask = mask,
                                      .gradient = gradient};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(batch_norm_kernels, convscope::CONVSCOPE_ISA::kBatchNorm)
