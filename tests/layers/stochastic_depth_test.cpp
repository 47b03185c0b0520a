// SPDX-License-Identifier: Apache-2.0
// stochastic_depth_test.cpp: which images are dropped, the gradient, and the compiled step.
#include <gtest/gtest.h>

#include <set>

#include "framework/autograd/gradcheck.h"
#include "layers/dropout.h"
#include "tests/layers/layer_cases.h"
#include "tests/support/compiled_step.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::build_layer;
using testing::options;

Tensor dropped_images(DropUnit unit, std::int64_t step, double p = 0.3) {
  return dropout(Variable(Tensor::full({2000, 3, 1, 2}, 1.0)),
                 {.seed = 3, .stream = 4, .step = step, .p = p, .unit = unit})
      .value();
}

TEST(StochasticDepth, DropsTheWantedShareOfImagesAsAWhole) {
  constexpr double kP = 0.3;
  const Tensor y = dropped_images(DropUnit::row, 5);
  double zeros = 0;
  for (std::int64_t n = 0; n < 2000; ++n) {
    zeros += y.at(6 * n) == 0 ? 1 : 0;
    for (std::int64_t i = 0; i < 6; ++i) {
      ASSERT_EQ(y.at(6 * n + i), y.at(6 * n)) << n;
    }
    ASSERT_TRUE(y.at(6 * n) == 0 ||
                y.at(6 * n) == static_cast<double>(static_cast<float>(1 / 0.7)));
  }
  EXPECT_NEAR(zeros / 2000, kP, 5 * std::sqrt(kP * (1 - kP) / 2000));
  EXPECT_TRUE(testing::same_bits(dropped_images(DropUnit::row, 5), y));
  EXPECT_FALSE(testing::same_bits(dropped_images(DropUnit::row, 6), y));
}

TEST(StochasticDepth, DropsAllImagesTogetherInModeBatch) {
  std::set<double> seen;
  for (std::int64_t step = 0; step < 20; ++step) {
    const Tensor y = dropped_images(DropUnit::batch, step, 0.5);
    for (std::int64_t i = 0; i < y.numel(); ++i) ASSERT_EQ(y.at(i), y.at(0));
    seen.insert(y.at(0));
  }
  EXPECT_EQ(seen, (std::set<double>{0, 2}));
}

TEST(StochasticDepth, TheBackwardPassDropsTheSameImages) {
  for (const DropUnit unit : {DropUnit::row, DropUnit::batch}) {
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& v) {
          return dropout(v[0], {.seed = 1, .stream = 2, .step = 4, .p = 0.4, .unit = unit});
        },
        {Variable(testing::normal({7, 2, 3, 1}, DType::f64, 1), /*requires_grad=*/true)});
    EXPECT_TRUE(result.ok) << result.str();
  }
}

// In NCHW16c too, because the number of an image does not depend on the layout.
TEST(StochasticDepth, IsCompiledWithTheSameBits) {
  const Options conv =
      options({{"out_channels", std::int64_t{24}}, {"kernel_size", std::vector<std::int64_t>{3}}});
  for (const auto& [mode, p] : {std::pair("row", 0.4), std::pair("batch", 0.1)}) {
    const Options drop = options({{"probability", p}, {"mode", std::string(mode)}});
    const std::string text = testing::expect_compiled_like_eager(
        {{.type = "conv2d", .name = "c", .options = conv},
         {.type = "stochastic_depth", .name = "d", .options = drop}},
        {6, 20, 8, 8}, {"direct", "direct", "direct", "nchw"});
    EXPECT_NE(text.find("d  stochastic_depth"), std::string::npos) << text;
  }
}

TEST(StochasticDepth, PassesImagesOnInEvalMode) {
  const auto layer = build_layer("stochastic_depth", options({{"probability", 0.9}}), {1, 3, 2, 2});
  const Variable x(testing::normal({9, 3, 2, 2}, DType::f32, 1));
  EXPECT_FALSE(testing::same_bits(layer->forward(x).value(), x.value()));
  layer->eval();
  EXPECT_TRUE(testing::same_bits(layer->forward(x).value(), x.value()));
}

TEST(StochasticDepth, NamesWhatIsExpected) {
  EXPECT_ERROR(ErrorKind::kInvalid, "[stochastic_depth] expected probability in [0,1), got 1",
               Dropout(1, 1, 2, DropUnit::row));
  EXPECT_ERROR(ErrorKind::kConfig, "mode: expected one of row, batch, got 'rows'",
               build_layer("stochastic_depth", options({{"mode", std::string("rows")}}), {1, 4}));
}

}  // namespace
}  // namespace convscope
