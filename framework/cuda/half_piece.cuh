// SPDX-License-Identifier: Apache-2.0
// half_piece.cuh: loads and stores 16-byte pieces of NHWC images. A piece is eight adjacent
// fp16/bf16 channels or four f32 channels, and takes one instruction. map_half() applies an
// operation to fp16/bf16 arrays. The operation computes in f32, and its result is rounded once.
#pragma once

#include "framework/cuda/half.cuh"
#include "framework/cuda/map.cuh"

namespace convscope {

inline constexpr int kPieceLanes = 8;  // of fp16/bf16
template <class T>
inline constexpr int kLanesOf = 16 / static_cast<int>(sizeof(T));

template <class T>
__device__ inline void floats_of_piece(const uint4& piece, float (&v)[kLanesOf<T>]) {
  const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (sizeof(T) == 4) {
      v[i] = __uint_as_float(words[i]);
    } else {
      const float2 pair = floats_from_pair<T>(words[i]);
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
  }
}

template <class T>
__device__ inline uint4 piece_of_floats(const float (&v)[kLanesOf<T>]) {
  if constexpr (sizeof(T) == 4) {
    return make_uint4(__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]),
                      __float_as_uint(v[3]));
  } else {
    return make_uint4(pair_from_floats<T>(v[0], v[1]), pair_from_floats<T>(v[2], v[3]),
                      pair_from_floats<T>(v[4], v[5]), pair_from_floats<T>(v[6], v[7]));
  }
}

// Calls body(T{}) with the C++ type of f16 or bf16.
template <class Body>
void with_half_type(DType dtype, Body&& body) {
  if (dtype == DType::f16) return body(Float16{});
  CONVSCOPE_CHECK(dtype == DType::bf16, "cuda", "expected elements of f16 or bf16, got ",
                  name_of(dtype));
  body(BFloat16{});
}

// Calls body(T{}) with the C++ type of f32, f16 or bf16, the element types of NHWC images.
template <class Body>
void with_stored_type(DType dtype, Body&& body) {
  if (dtype == DType::f32) return body(0.0f);
  with_half_type(dtype, body);
}

// Applies an operation on floats to fp16/bf16 elements; the result is rounded once.
template <class Half, int kInputs, class Op>
struct OnHalf {
  Op op;
  __device__ Half operator()(const Half* x) const {
    float v[kInputs];
#pragma unroll
    for (int i = 0; i < kInputs; ++i) v[i] = to_float(x[i]);
    return from_float<Half>(op(v));
  }
};

template <int kInputs, class Op>
void map_half(DType dtype, const Op& op, const MapInputs<void, kInputs>& in, void* y,
                std::int64_t count) {
  with_half_type(dtype, [&](auto zero) {
    using Half = decltype(zero);
    MapInputs<Half, kInputs> from;
    for (int i = 0; i < kInputs; ++i) from.p[i] = static_cast<const Half*>(in.p[i]);
    map<kInputs>(OnHalf<Half, kInputs, Op>{op}, from, static_cast<Half*>(y), count);
  });
}

}  // namespace convscope
