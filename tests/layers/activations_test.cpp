// SPDX-License-Identifier: Apache-2.0
// activations_test.cpp: tests the activations that are one file each: values, gradients, and that a
// compiled step runs them with the bits of eager execution.
#include "layers/activations/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "framework/autograd/gradcheck.h"
#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"
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
  const Shape input{6, 20, 8, 8};
  for (const Case& one : kCases) {
    const auto network = [&] {
      LayerContext context;
      context.seed = 5;
      Options conv, linear;
      conv.set("out_channels", std::int64_t{24});
      conv.set("kernel_size", std::vector<std::int64_t>{3});
      linear.set("out_features", std::int64_t{7});
      context.conv_policy = [](const std::string&) {
        return Conv2dPolicy{"direct", "direct", "direct", "nchw"};
      };
      return build_layers({{.type = "conv2d", .name = "c", .options = conv},
                           {.type = one.name, .name = "a", .options = {}},
                           {.type = "flatten", .name = "flat", .options = {}},
                           {.type = "linear", .name = "f", .options = linear}},
                          input, context);
    };
    const auto compiled = network(), eager = network();
    std::string why;
    const auto plan = StepPlan::make(*compiled, input, PlanMode::training, &why);
    ASSERT_NE(plan, nullptr) << why;
    EXPECT_NE(plan->text().find(cat("a  ", one.name)), std::string::npos) << plan->text();
    const Tensor x = inputs(input), labels = Tensor::zeros({6}, DType::i32);
    const Variable loss = softmax_cross_entropy(eager->forward(Variable(x)), labels);
    loss.backward();
    EXPECT_EQ(plan->forward(x, labels), loss.value().item());
    plan->backward();
    const auto a = compiled->parameters(), b = eager->parameters();
    for (std::size_t i = 0; i < a.size(); ++i) {
      const Tensor &da = a[i].variable.grad(), &db = b[i].variable.grad();
      EXPECT_EQ(
          std::memcmp(da.raw_data(), db.raw_data(), static_cast<std::size_t>(da.size_bytes())), 0)
          << one.name << " " << a[i].name;
    }
  }
}

TEST(Activations, NameWhatIsExpected) {
  EXPECT_ERROR(ErrorKind::kInvalid,
               "expected an activation of layers/activations/rules, got 'swush'",
               activation("swush", Variable(Tensor::zeros({1}))));
}

}  // namespace
}  // namespace convscope
