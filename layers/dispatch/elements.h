// SPDX-License-Identifier: Apache-2.0
// elements.h: what the elements of a call's arrays are: their types, and for integers the real
// numbers that they stand for.
//
//   real = scale * (stored - zero_point)
//
// Activations have one scale for the whole array, weights may have one for each output channel.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "framework/dtype.h"
#include "framework/export.h"
#include "framework/precision.h"

namespace convscope {

// One type for each array, and one for the sums. A gradient has the type of its array: dx that of
// x.
struct CONVSCOPE_API OperandTypes {
  DType x = DType::f32;
  DType w = DType::f32;
  DType accumulator = DType::f32;
  DType y = DType::f32;

  // x, w and y of one type; sums of half types in f32, of integers in i32.
  static OperandTypes all(DType type);

  std::string text() const;                                     // "i8:i8:i32:f32"
  static bool parse(std::string_view text, OperandTypes& out);  // false: no such text

  bool operator==(const OperandTypes&) const = default;
};

// u8 or i8: codes that have a scale.
inline bool is_code(DType type) { return type == DType::u8 || type == DType::i8; }

// From 1 to the next number of what the factors are rounded to; of integers, which are exact, that
// of the real numbers that they are turned into.
CONVSCOPE_API double eps_of(DType factors, MathMode math);

// The scales of one array. Of floating point types all is null: the elements are the numbers.
struct Quantisation {
  const double* scales = nullptr;             // [1], or one for each output channel
  const std::int32_t* zero_points = nullptr;  // as many; null: 0
  bool per_channel = false;
  // What is stored of y is clipped to these: of fewer bits, or of a curve behind the sum.
  std::int32_t low = std::numeric_limits<std::int32_t>::min();
  std::int32_t high = std::numeric_limits<std::int32_t>::max();

  double scale(std::int64_t channel) const {
    return scales == nullptr ? 1.0 : scales[per_channel ? channel : 0];
  }
  std::int32_t zero_point(std::int64_t channel) const {
    return zero_points == nullptr ? 0 : zero_points[per_channel ? channel : 0];
  }
};

// The codes that an array of this type holds: those of the type, or fewer.
struct CodeRange {
  std::int32_t low = 0, high = 0;
};
CONVSCOPE_API CodeRange code_range(DType type, const Quantisation& meaning);

}  // namespace convscope
