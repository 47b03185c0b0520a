// SPDX-License-Identifier: Apache-2.0
// elements.h: the element types of a call's arrays and, for integers, the real numbers that they
// represent.
//
//   real = scale * (stored - zero_point)
//
// Activations have one scale for the whole array. Weights may have one scale for each output
// channel.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "framework/dtype.h"
#include "framework/export.h"
#include "framework/precision.h"

namespace convscope {

// The types of x, w, y and of the accumulator. A gradient has the type of its array: dx has the
// type of x.
struct CONVSCOPE_API OperandTypes {
  DType x = DType::f32;
  DType w = DType::f32;
  DType accumulator = DType::f32;
  DType y = DType::f32;

  // Returns types with the same type for x, w and y. The accumulator is f32 for fp16/bf16 and i32
  // for integers.
  static OperandTypes all(DType type);

  std::string text() const;                                     // "i8:i8:i32:f32"
  static bool parse(std::string_view text, OperandTypes& out);  // false: malformed

  bool operator==(const OperandTypes&) const = default;
};

// Returns whether the type is u8 or i8: codes that have a scale.
inline bool is_code(DType type) { return type == DType::u8 || type == DType::i8; }

// Returns the distance from 1 to the next larger number of the operands' type. For integer types
// this is the distance in f32: integer sums are exact, but are then converted to f32.
CONVSCOPE_API double eps_of(DType operand_type, MathMode math);

// The scales of one array. For floating point types all members are null, and the elements are the
// values.
struct Quantisation {
  const double* scales = nullptr;             // [1], or one for each output channel
  const std::int32_t* zero_points = nullptr;  // as many; null: 0
  bool per_channel = false;
  // Stored codes of y are clipped to this range. It is smaller than the range of the type if codes
  // have fewer bits than the type, or if an activation follows the sum.
  std::int32_t low = std::numeric_limits<std::int32_t>::min();
  std::int32_t high = std::numeric_limits<std::int32_t>::max();

  double scale(std::int64_t channel) const {
    return scales == nullptr ? 1.0 : scales[per_channel ? channel : 0];
  }
  std::int32_t zero_point(std::int64_t channel) const {
    return zero_points == nullptr ? 0 : zero_points[per_channel ? channel : 0];
  }
};

// The range of the codes of an array: the range of the type, or a smaller one.
struct CodeRange {
  std::int32_t low = 0, high = 0;
};
CONVSCOPE_API CodeRange code_range(DType type, const Quantisation& meaning);

}  // namespace convscope
