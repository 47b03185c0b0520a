// SPDX-License-Identifier: Apache-2.0
// elementwise_simd.cpp: plain loops that the compiler vectorises, once per instruction set. All
// loops are memory-bound.
#include "framework/ops/elementwise_simd.h"

#include "framework/simd/simd.h"
#include "framework/simd/simd_math.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

struct Add {
  static CONVSCOPE_INLINE float of(float a, float b) { return a + b; }
};
struct Sub {
  static CONVSCOPE_INLINE float of(float a, float b) { return a - b; }
};
struct Mul {
  static CONVSCOPE_INLINE float of(float a, float b) { return a * b; }
};
struct Div {
  static CONVSCOPE_INLINE float of(float a, float b) { return a / b; }
};

template <class Op>
void binary(const float* __restrict a, const float* __restrict b, Repeat repeat,
            float* __restrict y, int64_t n) {
  if (repeat == Repeat::none) {
    for (int64_t i = 0; i < n; ++i) y[i] = Op::of(a[i], b[i]);
  } else if (repeat == Repeat::a) {
    const float first = *a;
    for (int64_t i = 0; i < n; ++i) y[i] = Op::of(first, b[i]);
  } else if (repeat == Repeat::b) {
    const float first = *b;
    for (int64_t i = 0; i < n; ++i) y[i] = Op::of(a[i], first);
  } else {
    const float value = Op::of(*a, *b);
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  }
}

struct Neg {
  static CONVSCOPE_INLINE float of(float x) { return -x; }
};
struct Exp {
  static CONVSCOPE_INLINE float of(float x) { return exp_of(x); }
};
struct Log {
  static CONVSCOPE_INLINE float of(float x) { return __builtin_logf(x); }
};
struct Sqrt {
  static CONVSCOPE_INLINE float of(float x) { return __builtin_sqrtf(x); }
};
struct Relu {
  static CONVSCOPE_INLINE float of(float x) { return x <= 0.0f ? 0.0f : x; }  // NaN passes through
};
struct Tanh {
  static CONVSCOPE_INLINE float of(float x) { return tanh_of(x); }
};
struct Sigmoid {
  static CONVSCOPE_INLINE float of(float x) { return sigmoid_of(x); }
};

template <class Op>
void unary(const float* __restrict x, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = Op::of(x[i]);
}

struct SqrtGradient {
  static CONVSCOPE_INLINE float of(float y, float dy) { return 0.5f * dy / y; }
};
struct ReluGradient {
  static CONVSCOPE_INLINE float of(float y, float dy) { return y <= 0.0f ? 0.0f : dy; }
};
struct TanhGradient {
  static CONVSCOPE_INLINE float of(float y, float dy) { return dy * (1.0f - y * y); }
};
struct SigmoidGradient {
  static CONVSCOPE_INLINE float of(float y, float dy) { return dy * (y * (1.0f - y)); }
};

template <class Op>
void gradient(const float* __restrict saved, const float* __restrict dy, float* __restrict dx,
              int64_t n) {
  for (int64_t i = 0; i < n; ++i) dx[i] = Op::of(saved[i], dy[i]);
}

void scale(float factor, const float* __restrict x, float* __restrict y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
}

void add_into(const float* __restrict from, float* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i];
}

}  // namespace

// In the order of the enums in elementwise.h.
constexpr ElementwiseKernels kElementwise{
    .binary = {binary<Add>, binary<Sub>, binary<Mul>, binary<Div>},
    .unary = {unary<Neg>, unary<Exp>, unary<Log>, unary<Sqrt>, unary<Relu>, unary<Tanh>,
              unary<Sigmoid>},
    .gradient = {gradient<SqrtGradient>, gradient<ReluGradient>, gradient<TanhGradient>,
                 gradient<SigmoidGradient>},
    .scale = scale,
    .add_into = add_into};

}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(elementwise_kernels, convscope::CONVSCOPE_ISA::kElementwise)
