// SPDX-License-Identifier: Apache-2.0
// gelu_test.cpp: tests the values and gradients of GELU. Also tests that a layer needs only its own
// files to be compiled and to be available in configs.
#include "layers/gelu.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
#include "tests/support/compiled_step.h"

namespace convscope {
namespace {

Tensor waves(const Shape& shape, DType dtype = DType::f32) {
  const Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(3 * std::sin(0.7 * static_cast<double>(i) + 0.2));
  }
  return x.to(dtype);
}

// The tolerance allows two roundings before erf, one rounding in erf, and two after it.
TEST(Gelu, is_x_times_the_normal_distribution) {
  const Tensor x = waves({101});
  const Tensor y = gelu(Variable(x)).value();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double v = x.at(i);
    EXPECT_NEAR(y.at(i), v * 0.5 * std::erfc(-v / std::sqrt(2.0)), 8 * 6e-8 * (1 + std::abs(v)));
  }
  const float infinity = INFINITY;
  const Tensor ends = gelu(Variable(Tensor::from({infinity, 0.0f, NAN}, {3}))).value();
  EXPECT_EQ(ends.at(0), infinity);
  EXPECT_EQ(ends.at(1), 0);
  EXPECT_TRUE(std::isnan(ends.at(2)));
}

// The f32 loops of each instruction set against the formula in f64, also where erf is nearly 1.
TEST(Gelu, has_the_values_and_gradients_of_f64) {
  const Isa before = current_isa();
  const auto results = [](DType dtype) {
    Tensor x = Tensor::empty({4001});
    for (std::int64_t i = 0; i < 4001; ++i) {
      x.data<float>()[i] = static_cast<float>(i - 2000) * 0.01f;
    }
    Variable leaf(x.to(dtype), /*requires_grad=*/true);
    const Variable y = gelu(leaf);
    y.backward(Tensor::full({4001}, 1.0, dtype));
    return std::vector<Tensor>{y.value(), leaf.grad()};
  };
  const std::vector<Tensor> exact = results(DType::f64);
  for (int isa = 0; isa < kIsaCount; ++isa) {
    if (!supports_isa(static_cast<Isa>(isa))) continue;
    set_isa(static_cast<Isa>(isa));
    const std::vector<Tensor> single = results(DType::f32);
    for (std::int64_t i = 0; i < 4001; ++i) {
      const double x = static_cast<double>(i - 2000) * 0.01;
      ASSERT_NEAR(single[0].at(i), exact[0].at(i), 2e-7 * (1 + std::abs(x))) << x;
      ASSERT_NEAR(single[1].at(i), exact[1].at(i), 5e-7) << x;
    }
  }
  set_isa(before);
}

TEST(Gelu, has_the_gradient_of_its_formula) {
  const GradcheckResult result =
      gradcheck([](const std::vector<Variable>& v) { return gelu(v[0]); },
                {Variable(waves({4, 5}, DType::f64), /*requires_grad=*/true)});
  EXPECT_TRUE(result.ok) << result.str();
}

TEST(Gelu, gives_the_bits_of_the_dynamic_graph_when_it_is_planned) {
  Options conv;
  conv.set("out_channels", std::int64_t{24});
  conv.set("kernel_size", std::vector<std::int64_t>{3});
  const std::string text =
      testing::expect_compiled_like_eager({{.type = "conv2d", .name = "c", .options = conv},
                                           {.type = "gelu", .name = "g", .options = {}}},
                                          {6, 20, 8, 8}, {"direct", "direct", "direct", "nchw"});
  EXPECT_NE(text.find("g  gelu"), std::string::npos) << text;
}

}  // namespace
}  // namespace convscope
