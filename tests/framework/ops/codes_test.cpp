// SPDX-License-Identifier: Apache-2.0
// codes_test.cpp: tests that rounding to integer codes agrees with double arithmetic on each
// instruction set.
#include "framework/ops/codes/codes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "framework/int_math.h"
#include "framework/random.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

class Codes : public ::testing::Test {
 protected:
  testing::MachineScope scope_;
};

// Random numbers, alternating with numbers that are hard to round.
std::vector<float> numbers(std::size_t count, double step) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float odd[] = {std::nanf(""), infinity, -infinity, 3e38f, -3e38f, 0.0f, -0.0f, 1e-40f};
  Generator random(3, 1);
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const int half = static_cast<int>(random.below(520)) - 260;
    const auto tie = static_cast<float>(step * (half + 0.5));
    const float beside = std::nextafter(tie, random.below(2) == 0 ? -infinity : infinity);
    out[i] = i % 11 == 3  ? odd[i / 11 % 8]
             : i % 3 == 0 ? tie
             : i % 3 == 1 ? beside
                          : static_cast<float>(step * 90) * random.normal();
  }
  return out;
}

int expected_code(float number, const RoundedImages& a) {
  double real = static_cast<double>(number) / *a.step;
  if (!(real > a.low)) real = a.low;
  if (real > a.high) real = a.high;
  return static_cast<int>(std::nearbyint(real)) & 255;
}

// The cases have 1 to 20 channels, so blocks of 16 channels are partly filled, and numbers of
// pixels that do not fill a vector.
TEST_F(Codes, OfImagesAreThoseOfDoubleArithmetic) {
  constexpr double kStep = 0.0137;
  struct Range {
    std::int32_t low, high;
  };
  for (const Range& range : {Range{0, 255}, Range{-128, 127}, Range{-8, 7}}) {
    for (std::int64_t channels = 1; channels <= 20; ++channels) {
      for (const std::int64_t pixels : {1, 7, 16, 37, 64}) {
        const auto from = numbers(static_cast<std::size_t>(2 * channels * pixels), kStep);
        const std::int64_t blocks = ceil_div(channels, std::int64_t{kCodeBlock});
        RoundedImages images{.images = 2,
                             .channels = channels,
                             .pixels = pixels,
                             .from = from.data(),
                             .step = &kStep,
                             .low = range.low,
                             .high = range.high};
        for (int i = 0; i < kIsaCount; ++i) {
          if (!supports_isa(static_cast<Isa>(i))) continue;
          set_isa(static_cast<Isa>(i));
          std::vector<std::uint8_t> to(static_cast<std::size_t>(2 * blocks * pixels * 16), 0xa5);
          images.to = to.data();
          round_images_kernel.get(Device{})(images);
          for (std::int64_t at = 0; at < static_cast<std::int64_t>(to.size()); ++at) {
            const std::int64_t p = at / 16 % pixels, n = at / 16 / pixels / blocks;
            const std::int64_t c = at / 16 / pixels % blocks * 16 + at % 16;
            int right = 0;
            if (c < channels) {
              right = expected_code(from[static_cast<std::size_t>((n * channels + c) * pixels + p)],
                                    images);
            }
            ASSERT_EQ(to[static_cast<std::size_t>(at)], right)
                << channels << " channels, pixel " << p << ", channel " << c;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace convscope
