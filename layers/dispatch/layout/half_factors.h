// SPDX-License-Identifier: Apache-2.0
// half_factors.h: an f32 image as the factors of a product of halves: each number times a power of
// two, rounded to f16. It is what tf32 means on a GPU here: f16 has tf32's 10 bits of mantissa, the
// tensor cores multiply it at twice the rate, and the scale stands for the bits of exponent.
//
//   halves[i] = f16(x[i] * *scale), for images [N,1,H,W,C] with their channels last (f32, C rounded
//   up to 8, lanes behind the last channel 0), in the same order; 16-byte aligned
//   *scale    = 2^e, -114 <= e <= 126, on the device. Sums are multiplied by the inverse.
//
// Who makes them. A card that takes an f32 image with its channels last makes them itself, in its
// workspace, with the scale of half_scale_exponent(): the largest finite magnitude then lies in
// [2^13, 2^14). One image has up to three products (forward, and as a factor of dw; dy is one of dx
// and of dw), so a planned step makes them once: by pack_half_factors_kernel, or in the kernel that
// writes the image. Such a kernel does not know the largest magnitude yet and scales by a bound of
// it: half_scale_exponent(bits of the bound).
//
// Halves keep 11 bits of a scaled number from 2^-14 on, and steps of 2^-24 below that. So a bound
// that is 2^k times the largest magnitude leaves 11 bits to all numbers above 2^(k - 27) times the
// largest. A magnitude up to twice the bound is finite, too (65504 is the largest half). NaN stays
// NaN, and an infinity stays one.
//
// The same exponent scales f32 as two halves (layers/conv2d/shared/cuda/half_pieces.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/export.h"
#include "framework/kernel_slot.h"

namespace convscope {

class Tensor;

struct HalfFactors {
  const void* halves = nullptr;  // null: not given
  const float* scale = nullptr;

  bool given() const { return halves != nullptr; }
};

// e of the scale 2^e for numbers whose largest magnitude, or a bound of it, has these bits as f32;
// finite. 0 for 0.
constexpr int half_scale_exponent(unsigned largest_bits) {
  const int exponent = static_cast<int>(largest_bits >> 23) - 127;
  const int e = largest_bits == 0 ? 0 : 13 - exponent;
  return e > 126 ? 126 : e;
}

// Halves and scale in one block of memory: the scale in front, with room for the partial maxima.
inline constexpr std::size_t kHalfFactorsHead = 2048;
constexpr std::size_t half_factors_bytes(std::int64_t elements) {
  return kHalfFactorsHead + (static_cast<std::size_t>(elements) * 2 + 255) / 256 * 256;
}
inline HalfFactors half_factors_in(const void* block) {
  return {static_cast<const std::byte*>(block) + kHalfFactorsHead,
          static_cast<const float*>(block)};
}

// x: an f32 image with its channels last; block: half_factors_bytes(x.numel()) bytes, 64-byte
// aligned. Two launches. On a GPU alone.
extern CONVSCOPE_API KernelSlot<void(const Tensor& x, void* block)> pack_half_factors_kernel;

}  // namespace convscope
