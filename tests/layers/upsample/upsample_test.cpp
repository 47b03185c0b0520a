// SPDX-License-Identifier: Apache-2.0
// upsample_test.cpp: values, gradients, layouts and the compiled step of upsample.
#include "layers/upsample/upsample.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/compiled_step.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::build_layer;
using testing::normal;
using testing::options;

const UpsampleOptions kCases[] = {
    {.scale = 2},
    {.scale = 3},
    {.scale = 1.5},
    {.p = 4, .q = 11},
    {.scale = 2, .mode = UpsampleMode::bilinear},
    {.scale = 2.7, .mode = UpsampleMode::bilinear},
    {.p = 3, .q = 9, .mode = UpsampleMode::bilinear},
    {.scale = 2, .mode = UpsampleMode::bilinear, .align_corners = true},
    {.p = 1, .q = 9, .mode = UpsampleMode::bilinear, .align_corners = true},
};

// The formula of upsample.h for one element.
double value_at(const Tensor& x, const UpsampleOptions& options, const Shape& y, std::int64_t plane,
                std::int64_t p, std::int64_t q) {
  const auto source = [&](int axis, std::int64_t at) {
    const double in = static_cast<double>(x.dim(axis)), out = static_cast<double>(y[axis]);
    const double r = options.scale > 0 ? 1 / options.scale : in / out;
    const double place = static_cast<double>(at);
    if (options.mode == UpsampleMode::nearest) return std::floor(place * r + 1e-9);
    if (options.align_corners) return out > 1 ? place * (in - 1) / (out - 1) : 0;
    return std::fmax(0, (place + 0.5) * r - 0.5);
  };
  const double i = source(2, p), j = source(3, q);
  double sum = 0;
  for (std::int64_t a = 0; a < x.dim(2); ++a) {
    for (std::int64_t b = 0; b < x.dim(3); ++b) {  // a source beyond the last pixel reads the last
      const double down = std::fmin(i, static_cast<double>(x.dim(2) - 1)) - static_cast<double>(a);
      const double across =
          std::fmin(j, static_cast<double>(x.dim(3) - 1)) - static_cast<double>(b);
      sum += std::fmax(0, 1 - std::abs(down)) * std::fmax(0, 1 - std::abs(across)) *
             x.at((plane * x.dim(2) + a) * x.dim(3) + b);
    }
  }
  return sum;
}

TEST(Upsample, HasTheValuesOfItsFormula) {
  const Tensor x = normal({2, 3, 4, 5}, DType::f32, 1);
  for (const UpsampleOptions& one : kCases) {
    const Tensor y = upsample(Variable(x), one).value();
    ASSERT_EQ(y.shape(), one.output_shape(x.shape()));
    for (std::int64_t at = 0; at < y.numel(); ++at) {
      const std::int64_t q = at % y.dim(3), p = at / y.dim(3) % y.dim(2);
      ASSERT_NEAR(y.at(at), value_at(x, one, y.shape(), at / (y.dim(2) * y.dim(3)), p, q), 2e-6)
          << "scale " << one.scale << " p " << p << " q " << q;
    }
  }
}

TEST(Upsample, HasTheGradientsOfItsFormula) {
  for (const UpsampleOptions& one : kCases) {
    const GradcheckResult result =
        gradcheck([&](const std::vector<Variable>& v) { return upsample(v[0], one); },
                  {Variable(normal({1, 2, 3, 4}, DType::f64, 1), true)});
    EXPECT_TRUE(result.ok) << one.scale << ": " << result.str();
  }
}

// The same bits in NCHW and in NCHW16c.
TEST(Upsample, IsCompiledWithTheSameBits) {
  const Options conv =
      options({{"out_channels", std::int64_t{20}}, {"kernel_size", std::vector<std::int64_t>{3}}});
  for (const char* mode : {"nearest", "bilinear"}) {
    for (const bool blocked : {false, true}) {
      const std::string layout = blocked ? "nchw16c" : "nchw";
      const std::string text = testing::expect_compiled_like_eager(
          {{.type = "conv2d", .name = "c1", .options = conv},
           {.type = "upsample",
            .name = "u",
            .options = options({{"scale", 2.0}, {"mode", std::string(mode)}})},
           {.type = "conv2d", .name = "c2", .options = conv}},
          {6, 24, 9, 9}, {testing::kDirect, testing::kDirect, testing::kDirect, layout},
          blocked ? 64 * 6e-8 : 0);
      EXPECT_NE(text.find(cat("u  upsample ", mode)), std::string::npos) << text;
      EXPECT_EQ(text.find("nchw16c") != std::string::npos, blocked) << text;
    }
  }
}

TEST(Upsample, NamesWhatIsExpected) {
  const Shape x{1, 3, 4, 5};
  const auto build = [&](const Options& given) {
    return build_layer("upsample", given, x)->output_shape(x);
  };
  EXPECT_EQ(build(options({{"size", std::int64_t{7}}})), (Shape{1, 3, 7, 7}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected either a scale or a size, got neither of them",
               build({}));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected either a scale or a size, got both",
               build(options({{"size", std::int64_t{7}}, {"scale", 2.0}})));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected mode bilinear because align_corners is set",
               build(options({{"align_corners", true}, {"scale", 2.0}})));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected an output of 1 to 2^20 pixels along each axis, got 0",
               build(options({{"scale", 0.1}})));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected x [N,C,H,W] with at least one pixel, got [2,3]",
               upsample(Variable(normal({2, 3}, DType::f32, 1)), {.scale = 2}));
}

}  // namespace
}  // namespace convscope
