// SPDX-License-Identifier: Apache-2.0
// precision.h: the number formats in which convolutions and linear layers multiply.
//
//   f32   operands and accumulators in f32
//   tf32  operands rounded to 10 bits of mantissa, accumulators in f32 (tensor cores)
//   bf16  operands rounded to bfloat16: 8 bits of mantissa, the range of f32; accumulators in f32
//   f16   operands rounded to binary16: 11 bits of mantissa, 6e-8 to 65504; accumulators in f32.
//         Small gradients would underflow, so the loss is scaled (optim/loss_scale.h)
// Weights, gradients of weights, the optimiser, batch norm and the loss stay f32. The CPU supports
// f32 only.
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

// Returns the element type of the operands x, w and dy.
constexpr DType factor_type(ComputePrecision precision) {
  return precision == ComputePrecision::bf16  ? DType::bf16
         : precision == ComputePrecision::f16 ? DType::f16
                                              : DType::f32;
}
// How f32 operands are multiplied. In mode f32, products have the rounding error of f32 on any
// hardware unit. In mode tf32, tensor cores first round the operands to 10 bits of mantissa; this
// mode is used only on request. In both modes, fp16 and bf16 operands are multiplied exactly and
// accumulated in f32.
enum class MathMode : std::uint8_t { f32, tf32 };
constexpr std::string_view name_of(MathMode mode) { return mode == MathMode::f32 ? "f32" : "tf32"; }
// Returns the math mode of a precision. A ComputePrecision combines an operand type with a math
// mode.
constexpr MathMode math_mode(ComputePrecision precision) {
  return precision == ComputePrecision::tf32 ? MathMode::tf32 : MathMode::f32;
}
constexpr bool is_half(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

}  // namespace convscope
