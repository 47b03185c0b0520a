// SPDX-License-Identifier: Apache-2.0
// activations_test.cpp: tests the activations that are one file each: values, gradients, and that a
// compiled step runs them with the bits of eager execution.
#include "layers/activations/activations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/autograd/gradcheck.h"
#include "tests/support/compiled_step.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

struct Case {
  const char* name;
  double (*value)(double x);
};
const Case kCases[] = {
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {"hard_swish", [](double x) { return x * std::fmin(std::fmax(x + 3, 0), 6) / 6; }},
};

// Numbers with an offset, with heavy tails, and the corners of hard_swish.
Tensor inputs(const Shape& shape, DType dtype = DType::f32) {
  const Tensor x = Tensor::empty(shape);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double wave = 3 * std::sin(0.7 * static_cast<double>(i) + 0.2);
    x.data<float>()[i] = static_cast<float>(i % 7 == 3 ? wave * wave * wave : wave + 0.4);
  }
  return x.to(dtype);
}

// exp and the division of a sigmoid err by 4 eps together, the products by 3 more, relative to
// |x| >= |y|.
TEST(Activations, HaveTheValuesOfTheirFormula) {
  for (const Case& one : kCases) {
    const Tensor x = inputs({1031});
    const Tensor y = activation(one.name, Variable(x)).value();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const double v = x.at(i);
      ASSERT_NEAR(y.at(i), one.value(v), 8 * 6e-8 * std::abs(v)) << one.name << " at " << v;
    }
    const Tensor ends =
        activation(one.name, Variable(Tensor::from({INFINITY, 0.0f, NAN, 3.0f, -3.0f}, {5})))
            .value();
    EXPECT_EQ(ends.at(0), INFINITY) << one.name;
    EXPECT_EQ(ends.at(1), 0) << one.name;
    EXPECT_TRUE(std::isnan(ends.at(2))) << one.name;
    EXPECT_NEAR(ends.at(3), one.value(3), 1e-6) << one.name;
    EXPECT_NEAR(ends.at(4), one.value(-3), 1e-6) << one.name;
  }
}

TEST(Activations, HaveTheGradientsOfTheirFormula) {
  for (const Case& one : kCases) {
    const GradcheckResult result =
        gradcheck([&](const std::vector<Variable>& v) { return activation(one.name, v[0]); },
                  {Variable(inputs({4, 5}, DType::f64), /*requires_grad=*/true)});
    EXPECT_TRUE(result.ok) << one.name << ": " << result.str();
  }
}

// The gradient of f32 against that of f64.
TEST(Activations, HaveTheGradientsOfF64) {
  for (const Case& one : kCases) {
    const auto gradient = [&](DType dtype) {
      Variable x(inputs({1031}, dtype), /*requires_grad=*/true);
      activation(one.name, x).backward(Tensor::full({1031}, 1.0, dtype));
      return x.grad();
    };
    const Tensor single = gradient(DType::f32), exact = gradient(DType::f64);
    const Tensor x = inputs({1031});
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      ASSERT_NEAR(single.at(i), exact.at(i), 12 * 6e-8 * (1 + std::abs(x.at(i)))) << one.name;
    }
  }
}

TEST(Activations, AreCompiledWithTheSameBits) {
  for (const Case& one : kCases) {
    Options conv;
    conv.set("out_channels", std::int64_t{24});
    conv.set("kernel_size", std::vector<std::int64_t>{3});
    const std::string text =
        testing::expect_compiled_like_eager({{.type = "conv2d", .name = "c", .options = conv},
                                             {.type = one.name, .name = "a", .options = {}}},
                                            {6, 20, 8, 8}, {"direct", "direct", "direct", "nchw"});
    EXPECT_NE(text.find(cat("a  ", one.name)), std::string::npos) << text;
  }
}

TEST(Activations, NameWhatIsExpected) {
  EXPECT_ERROR(ErrorKind::kInvalid,
               "expected an activation of layers/activations/rules, got 'swush'",
               activation("swush", Variable(Tensor::zeros({1}))));
}

}  // namespace
}  // namespace convscope
