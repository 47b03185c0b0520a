// SPDX-License-Identifier: Apache-2.0
// update_simd.cpp: the SGD and Adam updates of a range of elements, one vector at a time.
//
// Elements are independent, and every lane does the same operations, also in the masked last
// vector. So the bits do not depend on the division of the work. All loops are memory-bound: about
// 1 FLOP per 4 bytes.
#include "framework/simd/simd.h"
#include "optim/update.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

// Calls body(offset, load, store) for whole vectors and then for the rest.
template <class Body>
CONVSCOPE_INLINE void for_each_vector(std::int64_t count, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    body(
        i, [](const float* p) { return load(p); }, [](float* p, Vec a) { store(p, a); });
  }
  const int rest = static_cast<int>(count - i);
  if (rest > 0) {
    body(
        i, [rest](const float* p) { return load_first(p, rest); },
        [rest](float* p, Vec a) { store_first(p, a, rest); });
  }
}

template <bool kMomentum, bool kNesterov>
void sgd_loop(const UpdateSpan& s, const UpdateRow& row, const SgdRule& rule) {
  const Vec decay = broadcast(static_cast<float>(row.decay));
  const Vec minus_rate = broadcast(static_cast<float>(-row.rate));
  const Vec keep = broadcast(static_cast<float>(row.keep));
  const Vec gain = broadcast(static_cast<float>(row.gain));
  const Vec momentum = broadcast(static_cast<float>(rule.momentum));
  for_each_vector(s.count, [&](std::int64_t i, auto get, auto put) {
    const Vec w = get(s.w + i);
    Vec d = fma(decay, w, get(s.dw + i));
    if constexpr (kMomentum) {
      const Vec m = fma(keep, get(s.m + i), gain * d);
      put(s.m + i, m);
      if constexpr (kNesterov) {
        d = fma(momentum, m, d);
      } else {
        d = m;
      }
    }
    put(s.w + i, fma(minus_rate, d, w));
  });
}

void sgd(const UpdateSpan& span, const UpdateRow& row, const SgdRule& rule) {
  if (span.m == nullptr) return sgd_loop<false, false>(span, row, rule);
  if (rule.nesterov) return sgd_loop<true, true>(span, row, rule);
  sgd_loop<true, false>(span, row, rule);
}

void adam(const UpdateSpan& s, const UpdateRow& row, const AdamRule& rule) {
  const Vec decay = broadcast(static_cast<float>(row.decay));
  const Vec shrink = broadcast(static_cast<float>(row.shrink));
  const Vec rate = broadcast(static_cast<float>(row.rate));
  const Vec v_scale = broadcast(static_cast<float>(row.v_scale));
  const Vec epsilon = broadcast(static_cast<float>(rule.epsilon));
  const Vec beta1 = broadcast(static_cast<float>(rule.beta1));
  const Vec beta2 = broadcast(static_cast<float>(rule.beta2));
  // 1 - beta is computed in double: 1 - 0.999f would lose four digits.
  const Vec rest1 = broadcast(static_cast<float>(1 - rule.beta1));
  const Vec rest2 = broadcast(static_cast<float>(1 - rule.beta2));
  for_each_vector(s.count, [&](std::int64_t i, auto get, auto put) {
    const Vec w = get(s.w + i);
    const Vec d = fma(decay, w, get(s.dw + i));
    const Vec m = fma(beta1, get(s.m + i), rest1 * d);
    const Vec v = fma(beta2, get(s.v + i), rest2 * d * d);
    put(s.m + i, m);
    put(s.v + i, v);
    // Lanes past the end compute 0 / epsilon; their results are not stored.
    put(s.w + i, shrink * w - rate * m / fma(sqrt(v), v_scale, epsilon));
  });
}

// Returns the sum of squares. The square of a float is exact in double, so the sum has the same
// bits with every instruction set. Sixteen partial sums are independent, so additions need not
// wait.
double square_sum(const float* x, std::int64_t count) {
  constexpr int kSums = 16;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int k = 0; k < kSums; ++k) {
      const double value = static_cast<double>(x[i + k]);
      sums[k] += value * value;
    }
  }
  for (int k = 0; i + k < count; ++k) {
    const double value = static_cast<double>(x[i + k]);
    sums[k] += value * value;
  }
  double total = 0;
  for (int k = 0; k < kSums; ++k) total += sums[k];
  return total;
}

void scale(float* x, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) x[i] *= factor;
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(update_kernels, (UpdateKernels{.sgd = CONVSCOPE_ISA::sgd,
                                                      .adam = CONVSCOPE_ISA::adam,
                                                      .square_sum = CONVSCOPE_ISA::square_sum,
                                                      .scale = CONVSCOPE_ISA::scale}))
