// SPDX-License-Identifier: Apache-2.0
// update_step.cuh: updates one element of a weight w with its gradient dw, as an optimiser does. m
// and v are the moments. If a method has no m or no v, the array is neither read nor written.
// Read next  optim/update_cuda.cu
#pragma once

#include "framework/cuda/launch.cuh"
#include "framework/ops/update_rule.h"

namespace convscope {

// Reads all flags before it tests any, so that the reads take one memory latency instead of three.
__device__ inline bool is_open(const UpdateGate& gate) {
  const float loss = gate.loss != nullptr ? *gate.loss : 0.0f;
  const std::int32_t halted = gate.halted != nullptr ? *gate.halted : 0;
  const std::int32_t overflow = gate.overflow != nullptr ? *gate.overflow : 0;
  return static_cast<int>(isfinite(loss)) & static_cast<int>(halted == 0) &
         static_cast<int>(overflow == 0);
}

__device__ inline float fused(float a, float b, float c) { return ::fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return ::fma(a, b, c); }
// Computes a b - c with two roundings, so that all update kernels give the same bits.
__device__ inline float apart(float a, float b, float c) { return __fsub_rn(__fmul_rn(a, b), c); }
__device__ inline double apart(double a, double b, double c) {
  return __dsub_rn(__dmul_rn(a, b), c);
}
__device__ inline float root(float x) { return ::sqrtf(x); }
__device__ inline double root(double x) { return ::sqrt(x); }

template <class T>
struct SgdStep {
  T decay, minus_rate, keep, gain, momentum;
  bool nesterov;
  static constexpr bool kHasV = false;
  __device__ SgdStep(const UpdateFactors& f, const SgdRule& rule)
      : decay(static_cast<T>(f.decay)),
        minus_rate(static_cast<T>(-f.rate)),
        keep(static_cast<T>(f.keep)),
        gain(static_cast<T>(f.gain)),
        momentum(static_cast<T>(rule.momentum)),
        nesterov(rule.nesterov) {}
  __device__ void run(T& w, T dw, T& m, T&, bool has_m) const {
    T d = fused(decay, w, dw);
    if (has_m) {
      m = fused(keep, m, gain * d);
      d = nesterov ? fused(momentum, m, d) : m;
    }
    w = fused(minus_rate, d, w);
  }
};

template <class T>
struct AdamStep {
  T decay, shrink, rate, v_scale, epsilon, beta1, beta2, rest1, rest2;
  static constexpr bool kHasV = true;
  __device__ AdamStep(const UpdateFactors& f, const AdamRule& rule)
      : decay(static_cast<T>(f.decay)),
        shrink(static_cast<T>(f.shrink)),
        rate(static_cast<T>(f.rate)),
        v_scale(static_cast<T>(f.v_scale)),
        epsilon(static_cast<T>(rule.epsilon)),
        beta1(static_cast<T>(rule.beta1)),
        beta2(static_cast<T>(rule.beta2)),
        rest1(static_cast<T>(1 - rule.beta1)),
        rest2(static_cast<T>(1 - rule.beta2)) {}
  __device__ void run(T& w, T dw, T& m, T& v, bool) const {
    const T d = fused(decay, w, dw);
    m = fused(beta1, m, rest1 * d);
    v = fused(beta2, v, rest2 * d * d);
    w = apart(shrink, w, rate * m / fused(root(v), v_scale, epsilon));
  }
};

}  // namespace convscope
