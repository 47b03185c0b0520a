// SPDX-License-Identifier: Apache-2.0
// int8_vector.h: vectors for products of u8 activations and i8 weights ("bytes" in this file).
// Include it in *_int8_simd.cpp files only, which are compiled without and with VNNI (cpu_isa.h).
//
//   Ints         kLanes accumulators, i32 (simd.h)
//   Quad         four adjacent bytes x0 x1 x2 x3 of activations, 0..255, in every lane
//   WeightQuad   four bytes of weights, -128..127, different in each lane
//   dot(sums, x, w)   sums[l] + x0 w0[l] + x1 w1[l] + x2 w2[l] + x3 w3[l], exact
// Activations and weights may exchange their roles: load_quads() loads different activations into
// each lane, and broadcast_weights() loads the same weights into all lanes.
//
// The back ends are int8_avx512.h, int8_avx2.h, int8_vector4.h and int8_scalar.h.
//
// VNNI computes dot() with one instruction. Without VNNI, the instruction `vpmaddubsw` is
// unsuitable, because it saturates: two products of 255 * 127 exceed 16 bits. So the bytes are
// extended to 16 bits, even and odd bytes separately, and multiplied by `vpmaddwd`, which adds two
// products exactly. Weights are stored in this extended format (kSpread); activations are extended
// once for all lanes.
#pragma once

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns that _mm512_undefined_epi32() in its own header is uninitialised.
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <cstdint>

#include "framework/simd/cpu_isa.h"
#include "framework/simd/simd.h"
#include "framework/simd/vector4.h"

#if defined(CONVSCOPE_ISA_IS_AVX512)
#include "framework/simd/int8_avx512.h"
#elif defined(CONVSCOPE_ISA_IS_AVX2)
#include "framework/simd/int8_avx2.h"
#elif defined(CONVSCOPE_ISA_IS_VECTOR4)
#include "framework/simd/int8_vector4.h"
#else
#include "framework/simd/int8_scalar.h"
#endif

namespace convscope::CONVSCOPE_ISA {

inline constexpr bool kVnni = CONVSCOPE_ISA_VNNI;

// The weights of a lane for four inputs. With VNNI, they are stored as i8 w0 w1 w2 w3. Without
// VNNI, they are stored in 16 bits: first w0 w2 of all lanes, then w1 w3 of all lanes.
inline constexpr bool kSpread = kLanes > 1 && !kVnni;
inline constexpr int kWeightBytes = kSpread ? 8 : 4;  // of four inputs and one lane

// Interleaves four rows of 16 bytes each: to[4 j + i] = rows[i][j].
CONVSCOPE_INLINE void weave_rows(const std::uint8_t* const (&rows)[4], std::uint8_t* to) {
  four::Codes row[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) __builtin_memcpy(&row[i], rows[i], 16);
  const four::Codes low01 = four::weave_bytes_low(row[0], row[1]);
  const four::Codes low23 = four::weave_bytes_low(row[2], row[3]);
  const four::Codes high01 = four::weave_bytes_high(row[0], row[1]);
  const four::Codes high23 = four::weave_bytes_high(row[2], row[3]);
  const four::Codes out[4] = {
      four::weave_pairs_low(low01, low23), four::weave_pairs_high(low01, low23),
      four::weave_pairs_low(high01, high23), four::weave_pairs_high(high01, high23)};
  __builtin_memcpy(to, out, sizeof(out));
}

}  // namespace convscope::CONVSCOPE_ISA
