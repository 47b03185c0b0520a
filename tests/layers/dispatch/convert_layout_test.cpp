// SPDX-License-Identifier: Apache-2.0
// convert_layout_test.cpp: converts images between NCHW and NCHW16c, assigned and added.
#include <gtest/gtest.h>

#include "tests/layers/nchw16c_images.h"

namespace convscope {
namespace {

using namespace testing;

std::vector<Shape> shapes() {
  std::vector<Shape> out{{2, 40, 64, 64}, {1, 3, 50, 43}, {0, 17, 3, 3}, {3, 65, 7, 7}};
  for (const std::int64_t channels : {1, 7, 8, 9, 15, 16, 17, 40}) {
    for (const std::int64_t width : {1, 7, 8, 9, 15, 16, 17, 31, 33}) {
      out.push_back({2, channels, 1, width});
    }
  }
  return out;
}

// Calls body(i, j) for each element i of the NCHW images and its position j in NCHW16c.
template <class Body>
void each(const Shape& images, const Body& body) {
  const std::int64_t plane = images[2] * images[3], blocks = ceil_div(images[1], kChannelBlock);
  for (std::int64_t i = 0; i < images.numel(); ++i) {
    const std::int64_t n = i / plane / images[1], c = i / plane % images[1];
    body(i, ((n * blocks + c / 16) * plane + i % plane) * 16 + c % 16);
  }
}

TEST(ConvertLayout, MovesEachNumberToItsPlaceAndBack) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.str());
    const Tensor x = images_of(Numbers::ties, shape);
    on_every_isa([&] {
      const Tensor stored = dirty_nchw16c(shape), back = dirty(shape);
      convert_layout(x, shape, stored);
      each(shape, [&](std::int64_t i, std::int64_t at) {
        ASSERT_EQ(std::memcmp(x.data<float>() + i, stored.data<float>() + at, 4), 0) << i;
      });
      EXPECT_TRUE(has_clean_lanes(stored, shape, kNchw16c));
      convert_layout(stored, shape, back);
      EXPECT_TRUE(same_bits(back, x));
    });
  }
}

TEST(ConvertLayout, AddsToWhatIsThere) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.str());
    const Tensor x = images_of(Numbers::normal, shape),
                 other = images_of(Numbers::normal, shape, 2);
    const Tensor right = dirty(shape);
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      right.data<float>()[i] = other.data<float>()[i] + x.data<float>()[i];
    }
    on_every_isa([&] {
      const Tensor stored = dirty_nchw16c(shape), planes = other.clone();
      convert_layout(other, shape, stored);
      convert_layout(x, shape, stored, /*accumulate=*/true);
      each(shape,
           [&](std::int64_t i, std::int64_t at) { ASSERT_EQ(stored.at(at), right.at(i)) << i; });
      EXPECT_TRUE(has_clean_lanes(stored, shape, kNchw16c));
      convert_layout(nchw16c(x), shape, planes, /*accumulate=*/true);
      EXPECT_TRUE(same_bits(planes, right));
    });
  }
}

TEST(ConvertLayout, TakesPlanesOfAnotherShape) {
  const Shape shape{2, 17, 3, 2};
  const Tensor x = images_of(Numbers::normal, shape), flat = x.reshape({2, 102});
  const Tensor stored = dirty_nchw16c(shape), back = dirty({2, 102});
  convert_layout(flat, shape, stored);
  EXPECT_TRUE(same_bits(stored, nchw16c(x)));
  convert_layout(stored, shape, back);
  EXPECT_TRUE(same_bits(back, flat));
}

TEST(ConvertLayout, RefusesWhatDoesNotFit) {
  const Shape shape{2, 17, 3, 2};
  for (const Tensor& wrong : {dirty({2, 2, 2, 3, 16}), dirty({2, 1, 3, 2, 16}), dirty(shape)}) {
    EXPECT_NE(
        error_of([&] { convert_layout(dirty(shape), shape, wrong); }).find("[convert_layout]"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace convscope
