// SPDX-License-Identifier: Apache-2.0
// integer_execution_test.cpp: plans that compute with codes give what the fake-quantised network
// gives in double arithmetic.
#include <gtest/gtest.h>

#include <cmath>

#include "layers/layer_types.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using namespace testing;

std::shared_ptr<Module> model(const char* name, const Shape& input, const Options& given = {}) {
  LayerContext context;
  context.seed = 3;
  context.conv_policy = [](const std::string&) { return Conv2dPolicy{}; };
  const ModelType& type = model_types().get(name);
  return type.build(complete_options(type.fields, given, name), input, 10, context);
}

// Calibrated on one batch; steps are plain numbers, the same in f32 and f64.
void calibrate(Module& network, const QuantConfig& config, const Tensor& x) {
  apply_quantization(network, config, {});
  network.train();
  const NoGrad no_grad;
  for (int i = 0; i < 3; ++i) network.forward(Variable(x));
  network.eval();
}

QuantConfig bits(std::int64_t w, std::int64_t a, bool per_channel) {
  QuantConfig config;
  config.step = QuantStep::floored;
  config.w_bits = w;
  config.a_bits = a;
  config.per_channel = per_channel;
  return config;
}

Tensor infer(Module& network, const Tensor& x, bool on_integers, std::string* text = nullptr) {
  execute_on_integers(network, on_integers);
  std::string why;
  const auto plan = StepPlan::make(network, x.shape(), PlanMode::inference, &why);
  EXPECT_NE(plan, nullptr) << why;
  plan->prepare();
  if (text != nullptr) *text = plan->text();
  return plan->infer(x).clone();
}

// The network in f64: the same numbers, everything computed in double.
Tensor in_double(Module& network, const Tensor& x) {
  for (const NamedParameter& p : network.parameters()) {
    p.variable.state()->value = p.variable.value().to(DType::f64);
  }
  const NoGrad no_grad;
  return network.forward(Variable(x.to(DType::f64))).value();
}

TEST(IntegerExecution, LeNetGivesTheLogitsOfDoubleArithmetic) {
  for (const bool per_channel : {false, true}) {
    for (const auto& [w, a] : {std::pair{8, 8}, {4, 4}, {2, 3}}) {
      const auto network = model("lenet5", {5, 1, 28, 28});
      const Tensor x = normal({5, 1, 28, 28}, DType::f32, 9);
      QuantConfig config = bits(w, a, per_channel);
      calibrate(*network, config, x);
      std::string text;
      const Tensor codes = infer(*network, x, true, &text);
      EXPECT_NE(text.find("conv2d int8_direct f32:i8:i32:u8 + relu"), std::string::npos) << text;
      EXPECT_NE(text.find("max_pool2d on u8"), std::string::npos) << text;
      EXPECT_NE(text.find("linear int8_direct u8:i8:i32:f32"), std::string::npos) << text;
      EXPECT_EQ(text.find("fake"), std::string::npos) << text;
      // Sums of f32 in the fake-quantised step move some codes; those of double move none.
      const Tensor fake = infer(*network, x, false);
      const Tensor right = in_double(*network, x);
      EXPECT_TRUE(near(codes.to(DType::f64), right, 1e-6, 1e-6)) << w << " " << a;
      EXPECT_TRUE(near(codes, fake, 0.1, 0.1)) << w << " " << a;
    }
  }
}

TEST(IntegerExecution, ResidualNetworksGiveNearlyTheLogitsOfFakeQuantisation) {
  for (const char* name : {"resnet18", "mobilenet_v2", "mobilenet_v1"}) {
    const Shape shape{2, 3, 32, 32};
    const auto network = model(name, shape);
    const Tensor x = normal(shape, DType::f32, 9);
    calibrate(*network, bits(8, 8, true), x);
    std::string text;
    const Tensor codes = infer(*network, x, true, &text);
    const Tensor fake = infer(*network, x, false);
    double error = 0, size = 0;
    for (std::int64_t i = 0; i < codes.numel(); ++i) {
      error += std::pow(codes.at(i) - fake.at(i), 2);
      size += std::pow(fake.at(i), 2);
    }
    EXPECT_LT(std::sqrt(error / size), 0.02) << text;
  }
}

}  // namespace
}  // namespace convscope
