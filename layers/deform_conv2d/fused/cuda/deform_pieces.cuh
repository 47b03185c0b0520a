// SPDX-License-Identifier: Apache-2.0
// deform_pieces.cuh: device functions that read eight channels of a packed pixel, weight and add
// them, and write the sums as fp16/bf16 operands of the tensor cores. Scales keep f32 in the range
// of fp16. Read next  deform_cuda_plan.h; deform_places.cuh
#pragma once

#include <cstdint>

#include "layers/conv2d/shared/cuda/half_steps.cuh"
#include "layers/deform_conv2d/fused/cuda/deform_cuda_plan.h"

namespace convscope::deform_cuda {

using half_tiles::power_of_two;

// ---- eight channels of a pixel -----------------------------------------------------------------

// The operands of each problem type. Row is the type of the packed pixels in memory.
struct ByF32 {  // f32 by three products of fp16
  using Row = float;
  using Half = Float16;
  static constexpr int kTerms = 3;
};
struct ByF16 {  // f16; also TF32, as fp16 (which has TF32's 10 bits) scaled by a power of two
  using Row = Float16;
  using Half = Float16;
  static constexpr int kTerms = 1;
};
struct ByBF16 {
  using Row = BFloat16;
  using Half = BFloat16;
  static constexpr int kTerms = 1;
};

template <class Row>
struct RowPiece {  // fp16 or bf16
  uint4 words = {};
};
template <>
struct RowPiece<float> {
  float4 first = {}, second = {};
};

// Piece `index` of packed pixels.
template <class Row>
__device__ inline RowPiece<Row> read_piece(const void* rows, int index) {
  RowPiece<Row> out;
  if constexpr (sizeof(Row) == 4) {
    const auto* const at = static_cast<const float4*>(rows) + 2 * static_cast<std::int64_t>(index);
    out.first = __ldg(at);
    out.second = __ldg(at + 1);
  } else {
    out.words = __ldg(static_cast<const uint4*>(rows) + index);
  }
  return out;
}

// Unpacks both 16-bit numbers of a word; one instruction each.
template <class Half>
__device__ inline float2 unpacked(unsigned word) {
#if defined(CONVSCOPE_CUDA_EMULATED)
  return floats_from_pair<Half>(word);
#else
  if constexpr (dtype_of<Half> == DType::bf16) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  } else {
    __half2 pair;
    __builtin_memcpy(&pair, &word, sizeof(pair));
    return __half22float2(pair);
  }
#endif
}

// sums += weight piece
template <class Row>
__device__ inline void add_piece(float (&sums)[kPieceNumbers], float weight,
                                 const RowPiece<Row>& piece) {
  if constexpr (sizeof(Row) == 4) {
    const float values[kPieceNumbers] = {piece.first.x,  piece.first.y,  piece.first.z,
                                         piece.first.w,  piece.second.x, piece.second.y,
                                         piece.second.z, piece.second.w};
#pragma unroll
    for (int i = 0; i < kPieceNumbers; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
  } else {
    const unsigned words[4] = {piece.words.x, piece.words.y, piece.words.z, piece.words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpacked<Row>(words[i]);
      sums[2 * i] = fmaf(weight, pair.x, sums[2 * i]);
      sums[2 * i + 1] = fmaf(weight, pair.y, sums[2 * i + 1]);
    }
  }
}

// Writes eight sums as a 16-bit piece. With three terms, also writes the remainders of the sums,
// `plane` bytes further.
template <class By>
__device__ inline void write_sums(const float (&sums)[kPieceNumbers], unsigned char* to,
                                  int plane) {
  using Half = typename By::Half;
  unsigned high[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) high[i] = pair_from_floats<Half>(sums[2 * i], sums[2 * i + 1]);
  *reinterpret_cast<uint4*>(to) = make_uint4(high[0], high[1], high[2], high[3]);
  if constexpr (By::kTerms == 3) {
    unsigned low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpacked<Half>(high[i]);
      low[i] = pair_from_floats<Half>(sums[2 * i] - pair.x, sums[2 * i + 1] - pair.y);
    }
    *reinterpret_cast<uint4*>(to + plane) = make_uint4(low[0], low[1], low[2], low[3]);
  }
}

// A sum of weighted pieces, which is then written to shared memory. 16-bit operands are summed in
// 16 bits. This takes four more roundings, but a quarter of the instructions.
template <class By>
struct SampleSum {
  float sums[kPieceNumbers] = {};

  __device__ void add(const float4& weight, const RowPiece<typename By::Row> (&of)[4]) {
    const float weights[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) add_piece<typename By::Row>(sums, weights[i], of[i]);
  }
  __device__ void write(unsigned char* to, int plane) const { write_sums<By>(sums, to, plane); }
};
template <>
struct SampleSum<ByF16> {
  unsigned sums[kPieceNumbers / 2] = {};

  __device__ void add(const float4& weight, const RowPiece<Float16> (&of)[4]) {
    const float weights[4] = {weight.x, weight.y, weight.z, weight.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned by = pair_from_floats<Float16>(weights[i], weights[i]);
      const unsigned words[4] = {of[i].words.x, of[i].words.y, of[i].words.z, of[i].words.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        sums[j] =
            i == 0 ? multiply_half2(by, words[j]) : multiply_add_half2(by, words[j], sums[j]);
      }
    }
  }
  __device__ void write(unsigned char* to, int) const {
    *reinterpret_cast<uint4*>(to) = make_uint4(sums[0], sums[1], sums[2], sums[3]);
  }
};

// ---- scales of f32 as halves -------------------------------------------------------------------

// Pointers to the largest magnitudes, stored as bits of an f32. No element of a row of the product
// is larger than values * factors * count.
struct Scaling {
  const unsigned* values = nullptr;   // of the packed pixels; null: 16 bits, which are not scaled
  const unsigned* factors = nullptr;  // of the mask; null: none is larger than 1
  const unsigned* count = nullptr;    // most samples of a cell; null: the weights add up to 1
  const unsigned* weights = nullptr;  // of the other operand, packed so that it is below 2^14
  bool packed_scaled = false;         // the pixels were packed with the scale, too
};
struct Scales {
  float row;       // scales the weights of a row
  float2 unscale;  // its two numbers undo the scales; one number could overflow
};

__device__ inline float2 two_powers(int exponent) {
  return make_float2(power_of_two(exponent / 2), power_of_two(exponent - exponent / 2));
}

__device__ inline int packed_exponent(unsigned bits) {
  return clamped_exponent(kHalfExponent - bound_exponent(bits));
}

__device__ inline Scales scales_of(const Scaling& z) {
  const int more = (z.factors != nullptr ? bound_exponent(*z.factors) : 0) +
                   (z.count != nullptr ? count_exponent(*z.count) + 2 : 0);
  if (z.values == nullptr) {
    // Without lists no element exceeds the largest pixel, so only sums over lists are scaled down.
    const int down = z.count != nullptr && more > 0 ? more : 0;
    return {power_of_two(clamped_exponent(-down)), two_powers(clamped_exponent(down))};
  }
  const int row = clamped_exponent(kHalfExponent - bound_exponent(*z.values) - more);
  const int before = z.packed_scaled ? packed_exponent(*z.values) : 0;
  return {power_of_two(clamped_exponent(row - before)),
          two_powers(-(row + packed_exponent(*z.weights)))};
}

}  // namespace convscope::deform_cuda
