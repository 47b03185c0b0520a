// SPDX-License-Identifier: Apache-2.0
// half.cuh: the 16-bit floats of dtype.h in kernels. A conversion is one instruction on the GPU,
// and the plain C++ of dtype.h in the emulation. Both round to nearest, ties to even.
#pragma once

#include "framework/check.h"
#include "framework/cuda/runtime.cuh"
#include "framework/dtype.h"

#if !defined(CONVSCOPE_CUDA_EMULATED)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace convscope {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(Float16 value) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return static_cast<float>(value);
#else
  return __half2float(__ushort_as_half(value.bits));
#endif
}
__device__ inline float to_float(BFloat16 value) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return static_cast<float>(value);
#else
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
#endif
}

template <class T>
__device__ inline T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline Float16 from_float<Float16>(float value) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return Float16(value);
#else
  Float16 out;
  out.bits = __half_as_ushort(__float2half_rn(value));
  return out;
#endif
}
template <>
__device__ inline BFloat16 from_float<BFloat16>(float value) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return BFloat16(value);
#else
  BFloat16 out;
  out.bits = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  return out;
#endif
}

// Packs two floats into a 32-bit word of two fp16/bf16 elements, in memory order.
// floats_from_pair() unpacks the word.
template <class Half>
__device__ inline unsigned pair_from_floats(float first, float second) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return from_float<Half>(first).bits | static_cast<unsigned>(from_float<Half>(second).bits) << 16;
#else
  unsigned pair = 0;
  if constexpr (dtype_of<Half> == DType::bf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  }
  return pair;
#endif
}
template <class Half>
__device__ inline float2 floats_from_pair(unsigned pair) {
  Half first;
  Half second;
  first.bits = static_cast<std::uint16_t>(pair);
  second.bits = static_cast<std::uint16_t>(pair >> 16);
  return make_float2(to_float(first), to_float(second));
}

// Returns a value rounded to half precision, as f32. For bf16, it converts the pair (0, value) to a
// 32-bit word. This word has the bits of the rounded f32, so one instruction of fixed latency is
// enough. For a single bf16, the compiler would emit a conversion of variable latency and a shift.
template <class Half>
__device__ inline float rounded(float value) {
#if !defined(CONVSCOPE_CUDA_EMULATED)
  if constexpr (dtype_of<Half> == DType::bf16) {
    return __uint_as_float(pair_from_floats<Half>(0.0f, value));
  }
#endif
  return to_float(from_float<Half>(value));
}
__device__ inline float rounded_to(DType operand_type, float value) {
  if (operand_type == DType::bf16) return rounded<BFloat16>(value);
  if (operand_type == DType::f16) return rounded<Float16>(value);
  return value;
}

// multiply_half2() computes a b, and multiply_add_half2() computes a b + c, element by element, for
// packed pairs of fp16 numbers. Each result is rounded once.
__device__ inline unsigned multiply_half2(unsigned a, unsigned b) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  const float2 x = floats_from_pair<Float16>(a), y = floats_from_pair<Float16>(b);
  return pair_from_floats<Float16>(x.x * y.x, x.y * y.y);
#else
  unsigned out = 0;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
#endif
}
__device__ inline unsigned multiply_add_half2(unsigned a, unsigned b, unsigned c) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  const float2 x = floats_from_pair<Float16>(a), y = floats_from_pair<Float16>(b),
               z = floats_from_pair<Float16>(c);
  return pair_from_floats<Float16>(x.x * y.x + z.x, x.y * y.y + z.y);
#else
  unsigned out = 0;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
#endif
}

// Calls body(T{}) with the C++ type of f32, f16 or bf16:
//   with_float_type(dtype, [&](auto zero) { launch(scale_kernel<decltype(zero)>, ...); });
template <class Body>
void with_float_type(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body(float{});
    case DType::f16:
      return body(Float16{});
    case DType::bf16:
      return body(BFloat16{});
    default:
      fail("cuda", cat("expected elements of f32, f16 or bf16, got ", name_of(dtype)));
  }
}

}  // namespace convscope
