// SPDX-License-Identifier: Apache-2.0
// integer_grid.cpp: the integer codes that represent real numbers, and the one function that rounds
// to these codes.
#include "quant/integer_grid.h"

#include "framework/check.h"

namespace convscope {

IntegerGrid integer_grid(int bits, bool is_signed) {
  CONVSCOPE_CHECK(bits >= kMinBits && bits <= kMaxBits, "quant", "expected ", kMinBits, " to ",
                  kMaxBits, " bits, because a code is stored in one byte, got ", bits);
  if (!is_signed) return {.qn = 0, .qp = (1 << bits) - 1};
  return {.qn = 1 << (bits - 1), .qp = (1 << (bits - 1)) - 1};
}

}  // namespace convscope
