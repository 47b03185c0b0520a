// SPDX-License-Identifier: Apache-2.0
// precision.h: how convolutions and linear layers multiply.
//
//   f32   factors and sums in f32
//   tf32  factors rounded to 10 bits of mantissa, sums in f32 (tensor cores)
//   bf16  factors rounded to bfloat16: 8 bits of mantissa, the range of f32; sums in f32
//   f16   factors rounded to binary16: 11 bits of mantissa, 6e-8 to 65504; sums in f32. Small
//         gradients would become 0: the loss is scaled (optim/loss_scale.h)
// Weights, gradients of weights, the optimiser, batch norm and the loss stay f32. The CPU has no
// units for the other three.
#pragma once

#include <cstdint>
#include <string_view>

#include "framework/dtype.h"

namespace convscope {

enum class ComputePrecision : std::uint8_t { f32, tf32, bf16, f16 };
inline constexpr ComputePrecision kComputePrecisions[] = {
    ComputePrecision::f32, ComputePrecision::tf32, ComputePrecision::bf16, ComputePrecision::f16};

constexpr std::string_view name_of(ComputePrecision precision) {
  constexpr std::string_view kNames[] = {"f32", "tf32", "bf16", "f16"};
  return kNames[static_cast<int>(precision)];
}

// The type of the factors: x, w, dy.
constexpr DType factor_type(ComputePrecision precision) {
  return precision == ComputePrecision::bf16  ? DType::bf16
         : precision == ComputePrecision::f16 ? DType::f16
                                              : DType::f32;
}
// How f32 factors are multiplied. f32: with the error of f32 products, whatever the unit that makes
// them. tf32: they are rounded to 10 bits of mantissa first (tensor cores); never chosen unless
// asked for. Half types are multiplied exactly and summed in f32 in either mode.
enum class MathMode : std::uint8_t { f32, tf32 };
constexpr std::string_view name_of(MathMode mode) { return mode == MathMode::f32 ? "f32" : "tf32"; }
// A ComputePrecision is what a layer is told: a type of the factors and a mode of their products.
constexpr MathMode math_mode(ComputePrecision precision) {
  return precision == ComputePrecision::tf32 ? MathMode::tf32 : MathMode::f32;
}
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace convscope
