// SPDX-License-Identifier: Apache-2.0
// half_operands.h: an f32 image as fp16 operands of products. Each element is multiplied by one
// power of two, the scale, and rounded to f16. This implements tf32 on a GPU: f16 has tf32's 10
// mantissa bits, tensor cores multiply f16 at twice the rate, and the scale replaces the missing
// exponent bits.
//
//   `fp16[i]` = f16(x[i] * *scale), for NHWC images [N,1,H,W,C] (f32, C rounded up to 8, lanes
//   after the last channel 0), in the same order; 16-byte aligned
//   *scale    = 2^e, -114 <= e <= 126, on the device. Sums are multiplied by the inverse.
//
// Producers. An algorithm that takes an f32 NHWC image makes the operands itself, in its workspace,
// with the scale of half_scale_exponent(): the largest finite magnitude is then in [2^13, 2^14). An
// image is an operand of several products (x of forward and dw, dy of dx and dw), so a compiled
// step makes the operands once. It calls pack_half_operands_kernel, or the kernel that writes the
// image also writes the operands. The latter kernel does not know the largest magnitude yet and
// scales by an upper bound: half_scale_exponent(bits of the bound).
//
// f16 keeps 11 bits of a scaled number from 2^-14 on. Below 2^-14, the spacing of f16 is 2^-24. So
// if the bound is 2^k times the largest magnitude, all numbers above 2^(k - 27) times the largest
// magnitude keep 11 bits. Numbers up to twice the bound stay finite, too (65504 is the largest f16
// number). NaN stays NaN, and infinity stays infinity.
//
// The same exponent is used to split an f32 number into two f16 numbers
// (layers/conv2d/shared/cuda/half_pieces.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/export.h"
#include "framework/kernel_slot.h"

namespace convscope {

class Tensor;

struct HalfOperands {
  const void* fp16 = nullptr;  // null: not given
  const float* scale = nullptr;

  bool given() const { return fp16 != nullptr; }
};

// Returns e of the scale 2^e. `largest_bits` are the f32 bits of the largest magnitude or of an
// upper bound, which must be finite. Returns 0 for 0.
constexpr int half_scale_exponent(unsigned largest_bits) {
  const int exponent = static_cast<int>(largest_bits >> 23) - 127;
  const int e = largest_bits == 0 ? 0 : 13 - exponent;
  return e > 126 ? 126 : e;
}

// Scale and fp16 numbers share one block of memory. The scale and the partial maxima take this many
// bytes at its beginning.
inline constexpr std::size_t kHalfOperandsHead = 2048;
constexpr std::size_t half_operands_bytes(std::int64_t elements) {
  return kHalfOperandsHead + (static_cast<std::size_t>(elements) * 2 + 255) / 256 * 256;
}
inline HalfOperands half_operands_in(const void* block) {
  return {static_cast<const std::byte*>(block) + kHalfOperandsHead,
          static_cast<const float*>(block)};
}

// Writes scale and fp16 operands of the f32 NHWC image x to `block`, which has
// half_operands_bytes(x.numel()) bytes, 64-byte aligned. Takes two launches. GPU only.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, void* block)> pack_half_operands_kernel;

}  // namespace convscope
