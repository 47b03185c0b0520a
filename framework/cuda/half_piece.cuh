// SPDX-License-Identifier: Apache-2.0
// half_piece.cuh: eight halves that lie side by side, 16 bytes: what a thread loads and stores of
// images with their channels last. And maps over arrays of halves: computed in f32, rounded once.
#pragma once

#include "framework/cuda/half.cuh"
#include "framework/cuda/map.cuh"

namespace convscope {

inline constexpr int kPieceLanes = 8;

template <class Half>
__device__ inline void floats_of_piece(const uint4& piece, float (&v)[kPieceLanes]) {
  const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = floats_from_pair<Half>(words[i]);
    v[2 * i] = pair.x;
    v[2 * i + 1] = pair.y;
  }
}

template <class Half>
__device__ inline uint4 piece_of_floats(const float (&v)[kPieceLanes]) {
  return make_uint4(pair_from_floats<Half>(v[0], v[1]), pair_from_floats<Half>(v[2], v[3]),
                    pair_from_floats<Half>(v[4], v[5]), pair_from_floats<Half>(v[6], v[7]));
}

// Calls body(T{}) with the C++ type of f16 or bf16.
template <class Body>
void with_half_type(DType dtype, Body&& body) {
  if (dtype == DType::f16) return body(Float16{});
  CONVSCOPE_CHECK(dtype == DType::bf16, "cuda", "expected elements of f16 or bf16, got ",
                  name_of(dtype));
  body(BFloat16{});
}

// An operation on floats, on halves: their values go in, what comes out is rounded once.
template <class Half, int kInputs, class Op>
struct OnHalves {
  Op op;
  __device__ Half operator()(const Half* x) const {
    float v[kInputs];
#pragma unroll
    for (int i = 0; i < kInputs; ++i) v[i] = to_float(x[i]);
    return from_float<Half>(op(v));
  }
};

template <int kInputs, class Op>
void map_halves(DType dtype, const Op& op, const MapInputs<void, kInputs>& in, void* y,
                std::int64_t count) {
  with_half_type(dtype, [&](auto zero) {
    using Half = decltype(zero);
    MapInputs<Half, kInputs> from;
    for (int i = 0; i < kInputs; ++i) from.p[i] = static_cast<const Half*>(in.p[i]);
    map<kInputs>(OnHalves<Half, kInputs, Op>{op}, from, static_cast<Half*>(y), count);
  });
}

}  // namespace convscope
