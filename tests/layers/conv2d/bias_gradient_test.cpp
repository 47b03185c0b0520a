// SPDX-License-Identifier: Apache-2.0
// bias_gradient_test.cpp: db of a dy in NCHW16c, against sums in double.
#include "layers/conv2d/bias_gradient.h"

#include <gtest/gtest.h>

#include "tests/layers/nchw16c_images.h"

namespace convscope {
namespace {

using namespace testing;

TEST(Nchw16cBiasGradient, IsTheSumOverImagesAndPixels) {
  // At most 64 numbers are added in float (framework/simd/row_folds.h); rounding db adds one more
  // error.
  constexpr double kRoundings = 66 * 0x1p-24;
  for (const Shape& shape : {Shape{3, 1, 5, 7}, Shape{2, 16, 1, 1}, Shape{4, 17, 33, 32},
                             Shape{2, 40, 40, 41}, Shape{1, 260, 40, 30}, Shape{0, 17, 3, 3}}) {
    for (const Numbers kind : {Numbers::normal, Numbers::offset, Numbers::heavy_tails}) {
      SCOPED_TRACE(cat(shape, " numbers ", static_cast<int>(kind)));
      const Tensor dy = images_of(kind, shape);
      const std::int64_t plane = shape[2] * shape[3];
      for (const bool accumulate : {false, true}) {
        Tensor one;
        on_every_isa([&] {
          const Tensor db = accumulate ? Tensor::full({shape[1]}, 2.5) : dirty({shape[1]});
          conv2d_bias_gradient_kernel.get(kCpu)(nchw16c(dy), db, accumulate);
          if (num_threads() == 1) one = db;
          EXPECT_TRUE(same_bits(db, one));
          for (std::int64_t k = 0; k < shape[1]; ++k) {
            double sum = accumulate ? 2.5 : 0, size = std::abs(sum);
            for (std::int64_t i = 0; i < shape[0] * plane; ++i) {
              const double value = dy.at((i / plane * shape[1] + k) * plane + i % plane);
              sum += value;
              size += std::abs(value);
            }
            ASSERT_NEAR(db.at(k), sum, kRoundings * size) << k;
          }
        });
      }
    }
  }
}

TEST(Nchw16cBiasGradient, NaNStaysInItsChannel) {
  const Shape shape{2, 20, 3, 3};
  const Tensor dy = images_of(Numbers::normal, shape);
  dy.data<float>()[17 * 9 + 2] = std::numeric_limits<float>::quiet_NaN();
  const Tensor db = dirty({20});
  conv2d_bias_gradient_kernel.get(kCpu)(nchw16c(dy), db, false);
  for (std::int64_t k = 0; k < 20; ++k) EXPECT_EQ(std::isnan(db.at(k)), k == 17) << k;
}

}  // namespace
}  // namespace convscope
