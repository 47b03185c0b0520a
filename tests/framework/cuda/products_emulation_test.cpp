// SPDX-License-Identifier: Apache-2.0
// products_emulation_test.cpp: compares operands and accumulators of emulated tensor cores with
// plain loops (program test_emulation).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "framework/cuda/emulation/products.h"
#include "framework/dtype.h"

namespace convscope {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

// Decodes every fp16 and bf16 number as an element of an operand, in both memory orders.
template <class Half, bool kOuter>
void decode_every_half() {
  constexpr int kLines = 64, kDepths = 64, kNumbers = kLines * kDepths;
  const auto factor = std::make_unique<emulation::Factor<kLines, kDepths>>();
  std::vector<Half> memory(kNumbers);
  for (std::uint32_t first = 0; first < 0x10000; first += kNumbers) {
    for (std::uint32_t i = 0; i < kNumbers; ++i) {
      memory[i].bits = static_cast<std::uint16_t>(first + i);
    }
    factor->template fill<Half, kOuter>([&](int line, int depth) {
      const int at = kOuter ? depth * kLines + line : line * kDepths + depth;
      return reinterpret_cast<const unsigned char*>(memory.data() + at);
    });
    bool finite = true;
    for (int line = 0; line < kLines; ++line) {
      for (int depth = 0; depth < kDepths; ++depth) {
        const auto at =
            static_cast<std::size_t>(kOuter ? depth * kLines + line : line * kDepths + depth);
        const float expected = static_cast<float>(memory[at]);
        finite = finite && std::isfinite(expected);
        ASSERT_EQ(bits(factor->numbers[depth][line]), bits(expected)) << memory[at].bits;
      }
    }
    EXPECT_EQ(factor->finite, finite) << "halves from " << first;
  }
}

TEST(EmulatedProducts, DecodeEveryHalf) {
  decode_every_half<Float16, false>();
  decode_every_half<Float16, true>();
  decode_every_half<BFloat16, false>();
  decode_every_half<BFloat16, true>();
}

TEST(EmulatedProducts, DecodeFloats) {
  emulation::Factor<24, 8> factor;
  float memory[24][8];
  for (int line = 0; line < 24; ++line) {
    for (int depth = 0; depth < 8; ++depth)
      memory[line][depth] = 0.37f * static_cast<float>(line - 3 * depth);
  }
  const auto place = [&](int line, int depth) {
    return reinterpret_cast<const unsigned char*>(&memory[line][depth]);
  };
  factor.fill<float, false>(place);
  EXPECT_TRUE(factor.finite);
  for (int line = 0; line < 24; ++line) {
    for (int depth = 0; depth < 8; ++depth) {
      EXPECT_EQ(factor.numbers[depth][line], memory[line][depth]);
    }
  }
  for (const float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    memory[23][7] = value;
    factor.fill<float, false>(place);
    EXPECT_FALSE(factor.finite);
  }
}

// The emulation skips rows and columns that are all zeros, unless the other operand has infinities
// or NaN.
template <int kRows, int kColumns, int kDepths>
void compare_sums(float in_a, float in_b, int row) {
  using A = emulation::Factor<kRows, kDepths>;
  using B = emulation::Factor<kColumns, kDepths>;
  const auto a = std::make_unique<A>();
  const auto b = std::make_unique<B>();
  std::uint32_t random = 1;
  const auto next = [&] {
    random = random * 1664525u + 1013904223u;
    return static_cast<float>(random >> 8) * 0x1p-23f - 1.0f;
  };
  for (int depth = 0; depth < kDepths; ++depth) {
    for (int r = 0; r < kRows; ++r) a->numbers[depth][r] = r % 5 == 3 ? -0.0f : next();
    for (int c = 0; c < kColumns; ++c) b->numbers[depth][c] = c >= kColumns / 2 ? 0.0f : next();
  }
  a->numbers[kDepths / 2][row + 1] = in_a;
  b->numbers[1][kColumns / 3] = in_b;
  a->finite = std::isfinite(in_a);
  b->finite = std::isfinite(in_b);
  const emulation::Sums sums(*a, row, *b);
  for (int r = 0; r < 16; ++r) {
    for (int c = 0; c < kColumns; ++c) {
      float parts[8] = {}, sum = 0;
      for (int depth = 0; depth < kDepths; ++depth) {
        parts[depth % 8] += a->numbers[depth][row + r] * b->numbers[depth][c];
      }
      for (const float part : parts) sum += part;
      if (std::isnan(sum)) {
        EXPECT_TRUE(std::isnan(sums.of[r][c])) << "row " << r << ", column " << c;
      } else {
        EXPECT_EQ(bits(sums.of[r][c]), bits(sum)) << "row " << r << ", column " << c;
      }
    }
  }
}

TEST(EmulatedProducts, HaveTheBitsOfPlainLoops) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const auto& [a, b] : {std::pair{0.5f, 0.5f},
                             {infinity, 0.5f},
                             {0.5f, -infinity},
                             {std::nanf(""), 0.5f},
                             {0.5f, std::nanf("")}}) {
    compare_sums<16, 64, 16>(a, b, 0);
    compare_sums<16, 8, 8>(a, b, 0);
    compare_sums<16, 24, 16>(a, b, 0);
    compare_sums<64, 128, 64>(a, b, 32);
  }
}

// Lane l holds the elements in column 8 j + 2 (l%4) + e and row l/4 + 8 half. Each element of the
// product must occur exactly once.
TEST(EmulatedProducts, AreGivenToTheLanesThatHoldThem) {
  float sums[16][16];
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 16; ++column)
      sums[row][column] = static_cast<float>(100 * row + column);
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    float d[8];
    for (float& number : d) number = 0.5f;
    emulation::give_out<16>(sums, lane, d, lane % 2 == 1);
    for (unsigned i = 0; i < 8; ++i) {
      const unsigned row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      EXPECT_EQ(d[i], static_cast<float>(100 * row + column) + (lane % 2 == 1 ? 0.5f : 0.0f));
    }
  }
}

}  // namespace
}  // namespace convscope
