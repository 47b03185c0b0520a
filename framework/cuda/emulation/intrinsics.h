// SPDX-License-Identifier: Apache-2.0
// intrinsics.h: arithmetic, bit operations, atomics and loads of device code. The approximate
// functions (__expf) are exact here, so an error bound that holds here may not hold on a GPU.
#pragma once

#include <math.h>  // names without std::, as kernels use them
#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "framework/cuda/emulation/language.h"

// ---- arithmetic ----

template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> min(
    A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmin(static_cast<T>(a), static_cast<T>(b));
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b);
}
template <class A, class B>
requires(std::is_arithmetic_v<A>&& std::is_arithmetic_v<B>) constexpr std::common_type_t<A, B> max(
    A a, B b) {
  using T = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<T>) return std::fmax(static_cast<T>(a), static_cast<T>(b));
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frsqrt_rn(float a) { return 1.0f / std::sqrt(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; }
inline float fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline float rsqrt(float a) { return 1.0f / std::sqrt(a); }
inline void sincospif(float a, float* sine, float* cosine) {
  const double angle = 3.14159265358979323846 * std::remainder(static_cast<double>(a), 2.0);
  *sine = static_cast<float>(std::sin(angle));
  *cosine = static_cast<float>(std::cos(angle));
}
inline void sincospi(double a, double* sine, double* cosine) {
  const double angle = 3.14159265358979323846 * std::remainder(a, 2.0);
  *sine = std::sin(angle);
  *cosine = std::cos(angle);
}
// These functions are macros, because the C library uses their names internally.
#define __expf(a) ::expf(a)
#define __exp10f(a) ::powf(10.0f, a)
#define __logf(a) ::logf(a)
#define __log2f(a) ::log2f(a)
#define __powf(a, b) ::powf(a, b)
#define __sinf(a) ::sinf(a)
#define __cosf(a) ::cosf(a)
#define __tanf(a) ::tanf(a)
#define __sincosf(a, s, c) ((void)(*(s) = ::sinf(a), *(c) = ::cosf(a)))

inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __float2int_rd(float a) { return static_cast<int>(std::floor(a)); }
inline int __float2int_ru(float a) { return static_cast<int>(std::ceil(a)); }
inline int __float2int_rz(float a) { return static_cast<int>(a); }
inline unsigned __float2uint_rn(float a) { return static_cast<unsigned>(std::nearbyint(a)); }
inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }
inline float __ull2float_rn(unsigned long long a) { return static_cast<float>(a); }
inline float __double2float_rn(double a) { return static_cast<float>(a); }

// ---- bits ----

inline unsigned __float_as_uint(float a) { return std::bit_cast<unsigned>(a); }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline float __uint_as_float(unsigned a) { return std::bit_cast<float>(a); }
inline float __int_as_float(int a) { return std::bit_cast<float>(a); }
inline long long __double_as_longlong(double a) { return std::bit_cast<long long>(a); }
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __popcll(unsigned long long a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
inline int __clzll(long long a) { return std::countl_zero(static_cast<unsigned long long>(a)); }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __ffsll(long long a) { return __builtin_ffsll(a); }
inline unsigned __brev(unsigned a) {
  unsigned out = 0;
  for (int i = 0; i < 32; ++i) out |= (a >> i & 1u) << (31 - i);
  return out;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>(static_cast<std::int64_t>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = static_cast<std::uint64_t>(b) << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = selector >> (4 * i) & 7u;
    out |= static_cast<unsigned>(bytes >> (8 * pick) & 0xffu) << (8 * i);
  }
  return out;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both >> (shift & 31u));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  const std::uint64_t both = static_cast<std::uint64_t>(high) << 32 | low;
  return static_cast<unsigned>(both << (shift & 31u) >> 32);
}
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<std::int8_t>(a >> (8 * i)) * static_cast<std::int8_t>(b >> (8 * i));
  }
  return sum;
}

// ---- memory ----

template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldca(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldlu(const T* p) {
  return *p;
}
template <class T>
T __ldcv(const T* p) {
  return *p;
}
template <class T>
void __stwb(T* p, T value) {
  *p = value;
}
template <class T>
void __stcg(T* p, T value) {
  *p = value;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
template <class T>
void __stwt(T* p, T value) {
  *p = value;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// ---- atomics: return the old value. Only one thread runs at a time ----

template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  const T old = *p;
  *p = value;
  return old;
}
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return atomicExch(p, static_cast<T>(*p + value));
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> value) {
  return atomicExch(p, static_cast<T>(*p - value));
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return atomicExch(p, value < *p ? value : *p);
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return atomicExch(p, *p < value ? value : *p);
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  return atomicExch(p, *p & value);
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return atomicExch(p, *p | value);
}
template <class T>
T atomicXor(T* p, std::type_identity_t<T> value) {
  return atomicExch(p, *p ^ value);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return atomicExch(p, *p == expected ? value : *p);
}
inline unsigned atomicInc(unsigned* p, unsigned most) {
  return atomicExch(p, *p >= most ? 0u : *p + 1);
}
