// SPDX-License-Identifier: Apache-2.0
// batch_norm2d_nchw16c_simd.cpp: loops of batch norm over pixels of 16 contiguous channels: the
// sums, and the passes that write images.
//
// Method    A lane is a channel, so nothing is added across lanes, and every pixel fills whole
//           vectors. Values for each channel stay in registers over all pixels
// Numerics  A nearby number (the mean, or the channel's first element) is subtracted from each
//           element, so a mean far from 0 costs no accuracy. At most 64 numbers are added in float,
//           in several parallel accumulators. The result has at most 64 roundings of 2^-24 each;
//           with vectors it has 20 to 34
// Read next batch_norm2d_simd.cpp: the same over the planes of one channel
#include "layers/batch_norm2d/batch_norm2d_nchw16c_simd.h"

#include "framework/simd/row_folds.h"
#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

// A copy of 16 numbers, one for each channel. Since the copy is local, the compiler knows that
// writes to y do not change the copy.
struct PerChannel {
  explicit PerChannel(const float* from) {
    for (int c = 0; c < kRowLanes; ++c) at[c] = from[c];
  }
  float at[kRowLanes];
};

void square_sums(int64_t pixels, const float* x, const float* mean, double* total) {
  const PerChannel from(mean);
  fold_rows<1>(
      pixels, total, [&](Vec(&part)[1], int64_t at, int lane) __attribute__((always_inline)) {
        const Vec d = load(x + at) - load(from.at + lane);
        part[0] = fma(d, d, part[0]);
      });
}

void gradient_sums(int64_t pixels, const float* g, const float* x, const float* mean,
                   double* total) {
  const PerChannel from(mean);
  fold_rows<2>(
      pixels, total, [&](Vec(&part)[2], int64_t at, int lane) __attribute__((always_inline)) {
        const Vec gv = load(g + at);
        part[0] = part[0] + gv;
        part[1] = fma(gv, load(x + at) - load(from.at + lane), part[1]);
      });
}

// Calls body(offset, lane) for each vector of each pixel.
template <class Body>
CONVSCOPE_INLINE void for_vectors(int64_t pixels, const Body& body) {
  for (int64_t i = 0; i < pixels; ++i) {
#pragma GCC unroll 16
    for (int lane = 0; lane < kRowLanes; lane += kLanes) body(i * kRowLanes + lane, lane);
  }
}

// Returns x <= 0 ? 0 : x, limited to at most `most`. NaN stays NaN, and adding 0 turns -0 into 0.
CONVSCOPE_INLINE Vec curved(Vec x, Vec most) { return bounded_relu(x, most); }

template <bool kResidual, bool kRelu>
void apply_as(int64_t pixels, const float* x, const float* mean, const float* factor,
              const float* shift, const float* residual, float most, float* y) {
  const PerChannel from(mean), f(factor), s(shift);
  const Vec bound = broadcast(most);
  for_vectors(
      pixels, [&](int64_t at, int lane) __attribute__((always_inline)) {
        Vec v = fma(load(x + at) - load(from.at + lane), load(f.at + lane), load(s.at + lane));
        if (kResidual) v = v + load(residual + at);
        store(y + at, kRelu ? curved(v, bound) : v);
      });
}

void apply(int64_t pixels, const float* x, const float* mean, const float* factor,
           const float* shift, const float* residual, bool relu, float most, float* y) {
  if (residual == nullptr) {
    relu ? apply_as<false, true>(pixels, x, mean, factor, shift, residual, most, y)
         : apply_as<false, false>(pixels, x, mean, factor, shift, residual, most, y);
  } else {
    relu ? apply_as<true, true>(pixels, x, mean, factor, shift, residual, most, y)
         : apply_as<true, false>(pixels, x, mean, factor, shift, residual, most, y);
  }
}

template <bool kBounded>
void mask_as(int64_t pixels, const float* dy, const float* y, float most, float* g) {
  const Vec bound = broadcast(most);
  for_vectors(
      pixels, [&](int64_t at, int) __attribute__((always_inline)) {
        const Vec v = load(y + at);
        Vec kept = keep_where_positive(load(dy + at), v);
        if (kBounded) kept = keep_where_positive(kept, bound - v);
        store(g + at, kept);
      });
}

void mask(int64_t pixels, const float* dy, const float* y, float most, float* g) {
  most < __builtin_inff() ? mask_as<true>(pixels, dy, y, most, g)
                          : mask_as<false>(pixels, dy, y, most, g);
}

void gradient(int64_t pixels, const float* dy, const float* x, const float* mean, const float* a,
              const float* b, const float* d, float* dx) {
  const PerChannel from(mean), va(a), vb(b), vd(d);
  for_vectors(
      pixels, [&](int64_t at, int lane) __attribute__((always_inline)) {
        const Vec away = load(x + at) - load(from.at + lane);
        const Vec right = fma(load(vb.at + lane), away, load(vd.at + lane));
        store(dx + at, fma(load(va.at + lane), load(dy + at), right));
      });
}

}  // namespace
constexpr Nchw16cBatchNormKernels kNchw16cBatchNorm{.square_sums = square_sums,
                                                    .gradient_sums = gradient_sums,
                                                    .apply = apply,
                                                    .mask = mask,
                                                    .gradient = gradient};
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(nchw16c_batch_norm_kernels, convscope::CONVSCOPE_ISA::kNchw16cBatchNorm)
