// SPDX-License-Identifier: Apache-2.0
// gelu_test.cpp: tests the values and gradients of GELU. Also tests that a layer needs only its own
// files to be compiled and to be available in configs.
#include "layers/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "framework/autograd/gradcheck.h"
#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/step_plan.h"

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

TEST(Gelu, has_the_gradient_of_its_formula) {
  const GradcheckResult result =
      gradcheck([](const std::vector<Variable>& v) { return gelu(v[0]); },
                {Variable(waves({4, 5}, DType::f64), /*requires_grad=*/true)});
  EXPECT_TRUE(result.ok) << result.str();
}

TEST(Gelu, gives_the_bits_of_the_dynamic_graph_when_it_is_planned) {
  const Shape input{6, 20, 8, 8};
  const auto network = [&] {
    LayerContext context;
    context.seed = 5;
    context.conv_policy = [](const std::string&) {
      return Conv2dPolicy{"direct", "direct", "direct", "nchw"};
    };
    Options conv, linear;
    conv.set("out_channels", std::int64_t{24});
    conv.set("kernel_size", std::vector<std::int64_t>{3});
    linear.set("out_features", std::int64_t{7});
    return build_layers({{.type = "conv2d", .name = "c", .options = conv},
                         {.type = "gelu", .name = "g", .options = {}},
                         {.type = "flatten", .name = "flat", .options = {}},
                         {.type = "linear", .name = "f", .options = linear}},
                        input, context);
  };
  const auto planned = network();
  const auto dynamic = network();
  std::string why;
  const auto plan = StepPlan::make(*planned, input, PlanMode::training, &why);
  ASSERT_NE(plan, nullptr) << why;
  EXPECT_NE(plan->text().find("g  gelu"), std::string::npos) << plan->text();
  const Tensor x = waves(input);
  const Tensor labels = Tensor::zeros({6}, DType::i32);
  const Variable loss = softmax_cross_entropy(dynamic->forward(Variable(x)), labels);
  loss.backward();
  EXPECT_EQ(plan->forward(x, labels), loss.value().item());
  plan->backward();
  const auto a = planned->parameters();
  const auto b = dynamic->parameters();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor& da = a[i].variable.grad();
    const Tensor& db = b[i].variable.grad();
    EXPECT_EQ(std::memcmp(da.raw_data(), db.raw_data(), static_cast<std::size_t>(da.size_bytes())),
              0)
        << a[i].name;
  }
}

}  // namespace
}  // namespace convscope
