// SPDX-License-Identifier: Apache-2.0
// half_pieces.h: pieces of eight fp16/bf16 numbers, and the scale of f32 as two fp16 numbers. It
// needs no CUDA, so tests check it on the CPU.
#pragma once

#include "framework/int_math.h"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope::half_tiles {

inline constexpr int kPieceElements = 8;  // of 16 bytes

constexpr int pieces_of(int channels) { return ceil_div(channels, kPieceElements); }

// Returns e of the scale of f32 as two fp16 numbers. Scaling by 2^e brings the largest magnitude to
// [2^13, 2^14). Then high = half(v), low = half(v - high): 22 bits for all v above 2^-27 of the
// largest.
constexpr int scale_exponent(unsigned largest_bits) { return half_scale_exponent(largest_bits); }

}  // namespace convscope::half_tiles
