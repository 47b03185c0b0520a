// SPDX-License-Identifier: Apache-2.0
// elements.cpp: the element types of a call's arrays and, for integers, the real numbers that they
// represent.
#include "layers/dispatch/elements.h"

#include <algorithm>

#include "framework/check.h"

namespace convscope {

OperandTypes OperandTypes::all(DType type) {
  const DType sums = is_half(type) ? DType::f32 : is_code(type) ? DType::i32 : type;
  return {.x = type, .w = type, .accumulator = sums, .y = type};
}

std::string OperandTypes::text() const {
  return cat(name_of(x), ":", name_of(w), ":", name_of(accumulator), ":", name_of(y));
}

bool OperandTypes::parse(std::string_view text, OperandTypes& out) {
  DType* const places[] = {&out.x, &out.w, &out.accumulator, &out.y};
  for (DType* const place : places) {
    const bool last = place == &out.y;
    const std::size_t colon = text.find(':');
    if ((colon == std::string_view::npos) != last) return false;
    const std::string_view word = text.substr(0, colon);
    int type = 0;
    while (type < kDTypeCount && name_of(static_cast<DType>(type)) != word) ++type;
    if (type == kDTypeCount) return false;
    *place = static_cast<DType>(type);
    if (!last) text.remove_prefix(colon + 1);
  }
  return true;
}

double eps_of(DType operand_type, MathMode math) {
  if (operand_type == DType::f64) return 0x1p-52;
  if (operand_type == DType::bf16) return 0x1p-7;
  if (operand_type == DType::f16 || math == MathMode::tf32) return 0x1p-10;
  return 0x1p-23;
}

// Returns the range of codes. An f32 array that a kernel rounds to codes has the range of i8.
CodeRange code_range(DType type, const Quantisation& meaning) {
  const bool is_unsigned = type == DType::u8;
  return {.low = std::max(meaning.low, is_unsigned ? 0 : -128),
          .high = std::min(meaning.high, is_unsigned ? 255 : 127)};
}

}  // namespace convscope
