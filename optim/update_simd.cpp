// SPDX-License-Identifier: Apache-2.0
// update_simd.cpp: the updates of a range of elements, one vector at a time.
//
// Elements are independent, and every lane does the same operations, also in the masked last
// vector. So the bits do not depend on the division of the work. All loops are memory-bound: about
// 1 FLOP per 4 bytes.
#include <convscope/update_rules.h>

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

struct VectorMath {
  using Value = Vec;
  CONVSCOPE_INLINE static Vec number(double x) { return broadcast(static_cast<float>(x)); }
  CONVSCOPE_INLINE static Vec fma(Vec a, Vec b, Vec c) { return CONVSCOPE_ISA::fma(a, b, c); }
  CONVSCOPE_INLINE static Vec mul_sub(Vec a, Vec b, Vec c) { return a * b - c; }
  CONVSCOPE_INLINE static Vec sqrt(Vec x) { return CONVSCOPE_ISA::sqrt(x); }
  CONVSCOPE_INLINE static Vec sign(Vec x) {
    const Vec one = broadcast(1.0f);
    return keep_where_positive(one, x) - keep_where_positive(one, zero() - x);
  }
};

template <class Rule, int kStates>
void update_states(const UpdateRow& row, std::int64_t begin, std::int64_t count, const Rule& rule) {
  const typename Rule::template Step<VectorMath> step(
      row.scalars.template as<typename Rule::Scalars>(), rule);
  float* const w_from = static_cast<float*>(row.w) + begin;
  const float* const dw_from = static_cast<const float*>(row.dw) + begin;
  float* state_from[Rule::kStates];
  for (int k = 0; k < kStates; ++k) state_from[k] = static_cast<float*>(row.state[k]) + begin;
  // Lanes past the end compute with zeros; their results are not stored.
  for_each_vector(count, [&](std::int64_t i, auto get, auto put) {
    Vec w = get(w_from + i);
    Vec state[Rule::kStates];
    for (int k = 0; k < kStates; ++k) state[k] = get(state_from[k] + i);
    step.run(w, get(dw_from + i), state);
    for (int k = 0; k < kStates; ++k) put(state_from[k] + i, state[k]);
    put(w_from + i, w);
  });
}

template <class Rule>
void update(const UpdateRow& row, std::int64_t begin, std::int64_t count, const void* settings) {
  const Rule& rule = *static_cast<const Rule*>(settings);
  if constexpr (requires { rule.states(); }) {
    if (rule.states() == 0) return update_states<Rule, 0>(row, begin, count, rule);
  }
  update_states<Rule, Rule::kStates>(row, begin, count, rule);
}

void follow(float* to, const float* w, std::int64_t count, double rate) {
  const Vec r = VectorMath::number(rate);
  for_each_vector(count, [&](std::int64_t i, auto get, auto put) {
    const Vec x = get(to + i);
    put(to + i, CONVSCOPE_ISA::fma(r, get(w + i) - x, x));
  });
}

template <class List>
struct Loops;
template <class... Rules>
struct Loops<UpdateRuleList<Rules...>> {
  static constexpr UpdateLoop* kAll[] = {&update<typename Rules::Kernels>...};
};

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

CONVSCOPE_SIMD_KERNELS(update_kernels,
                       (UpdateKernels{.update = CONVSCOPE_ISA::Loops<UpdateRules>::kAll,
                                      .follow = CONVSCOPE_ISA::follow,
                                      .square_sum = CONVSCOPE_ISA::square_sum,
                                      .scale = CONVSCOPE_ISA::scale}))
