// SPDX-License-Identifier: Apache-2.0
// integer_execution_test.cpp: tests that inference graphs which compute on integer codes agree with
// the fake-quantised network in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "framework/simd/cpu_isa.h"
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

// Calibrates the quantisers on one batch. bits() selects the variant `floored`, whose parameter is
// s itself, so networks in f32 and in f64 have equal step sizes.
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

// Builds a LeNet whose convolutions name an algorithm. Therefore they do not run as a chain.
std::shared_ptr<Module> lenet_of_single_layers() {
  LayerContext context;
  context.seed = 3;
  context.conv_policy = [](const std::string&) {
    return Conv2dPolicy{.forward = "int8_direct,auto"};
  };
  const ModelType& type = model_types().get("lenet5");
  return type.build(complete_options(type.fields, {}, "lenet5"), {70, 1, 28, 28}, 10, context);
}

Tensor infer(Module& network, const Tensor& x, bool on_integers, std::string* text = nullptr) {
  execute_on_integers(network, on_integers ? IntegerUse::always : IntegerUse::never);
  std::string why;
  const auto plan = StepPlan::make(network, x.shape(), PlanMode::inference, &why);
  EXPECT_NE(plan, nullptr) << why;
  plan->prepare();
  if (text != nullptr) *text = plan->text();
  return plan->infer(x).clone();
}

// Computes LeNet's formulas in double: in each layer, from the quantised values of the previous
// layer.
class DoubleLeNet {
 public:
  explicit DoubleLeNet(Module& network) {
    for (const QuantizedTensor& one : quantized_tensors(network)) {
      (one.is_weight ? weights_ : inputs_)[one.layer] = one.quantizer;
    }
    for (const NamedParameter& p : network.parameters()) values_[p.name] = p.variable.value();
  }

  std::vector<double> operator()(const Tensor& image, std::int64_t n) const {
    std::vector<double> x;
    for (std::int64_t i = 0; i < 28 * 28; ++i) x.push_back(image.at(n * 28 * 28 + i));
    x = pooled(conv("c1", x, 1, 28), 24);
    x = pooled(conv("c2", x, 6, 12), 8);
    x = linear("f3", x, true);
    x = linear("f4", x, true);
    return linear("f5", x, false);
  }

 private:
  static double code(double v, double s, const IntegerGrid& grid) {
    return std::nearbyint(std::clamp<double>(v / s, -grid.qn, grid.qp));
  }
  std::vector<double> rounded(const std::string& layer, std::vector<double> x) const {
    const Quantizer& by = *inputs_.at(layer);
    const double s = by.steps().at(0);
    for (double& v : x) v = s * code(v, s, by.grid());
    return x;
  }
  // Weights are f32 numbers and are rounded in f32.
  double weight(const std::string& layer, std::int64_t k, std::int64_t i,
                std::int64_t inner) const {
    const Quantizer& by = *weights_.at(layer);
    const Tensor steps = by.steps();
    const float s = steps.data<float>()[steps.numel() > 1 ? k : 0];
    const float v = values_.at(layer + ".weight").data<float>()[k * inner + i];
    const auto low = static_cast<float>(-by.grid().qn), high = static_cast<float>(by.grid().qp);
    return static_cast<double>(s) * code_of(v, s, low, high);
  }
  std::vector<double> conv(const std::string& layer, std::vector<double> x, std::int64_t channels,
                           std::int64_t side) const {
    x = rounded(layer, std::move(x));
    const Shape w = values_.at(layer + ".weight").shape();
    const std::int64_t out = side - w[2] + 1;
    std::vector<double> y;
    for (std::int64_t k = 0; k < w[0]; ++k) {
      for (std::int64_t at = 0; at < out * out; ++at) {
        double sum = values_.at(layer + ".bias").at(k);
        for (std::int64_t i = 0; i < channels * w[2] * w[3]; ++i) {
          const std::int64_t row = at / out + i / w[3] % w[2], column = at % out + i % w[3];
          sum += weight(layer, k, i, channels * w[2] * w[3]) *
                 x[static_cast<std::size_t>((i / w[2] / w[3] * side + row) * side + column)];
        }
        y.push_back(std::max(sum, 0.0));
      }
    }
    return y;
  }
  static std::vector<double> pooled(const std::vector<double>& x, std::int64_t side) {
    std::vector<double> y;
    const std::int64_t planes = static_cast<std::int64_t>(x.size()) / side / side, half = side / 2;
    for (std::int64_t i = 0; i < planes * half * half; ++i) {
      const std::int64_t at = (i / half / half * side + i / half % half * 2) * side + i % half * 2;
      const double* const from = x.data() + at;
      y.push_back(std::max(std::max(from[0], from[1]), std::max(from[side], from[side + 1])));
    }
    return y;
  }
  std::vector<double> linear(const std::string& layer, std::vector<double> x, bool relu) const {
    x = rounded(layer, std::move(x));
    const auto inner = static_cast<std::int64_t>(x.size());
    std::vector<double> y;
    for (std::int64_t k = 0; k < values_.at(layer + ".bias").numel(); ++k) {
      double sum = values_.at(layer + ".bias").at(k);
      for (std::int64_t i = 0; i < inner; ++i) {
        sum += weight(layer, k, i, inner) * x[static_cast<std::size_t>(i)];
      }
      y.push_back(relu ? std::max(sum, 0.0) : sum);
    }
    return y;
  }

  std::map<std::string, const Quantizer*> weights_, inputs_;
  std::map<std::string, Tensor> values_;
};

// Without VNNI, a LeNet on integers is slower than in f32, both in estimates and in
// measurements (quant/README.md).
TEST(IntegerExecution, WithoutVnniTakesTheFasterOneUnlessAskedTo) {
  if (!supports_isa(Isa::avx2)) GTEST_SKIP() << "no AVX2 here";
  const MachineScope scope;
  set_isa(Isa::avx2);
  const Shape digits = {64, 1, 28, 28};
  const auto lenet = [&](QuantExecute execute) {
    const auto network = model("lenet5", digits);
    const Tensor x = normal(digits, DType::f32, 9);
    QuantConfig config = bits(8, 8, false);
    config.execute = execute;
    calibrate(*network, config, x);
    std::string why;
    const auto plan = StepPlan::make(*network, x.shape(), PlanMode::inference, &why);
    EXPECT_NE(plan, nullptr) << why;
    const bool codes = plan->text().find("int8_") != std::string::npos;
    const bool says_why = !why_not_on_integers(*network, {}, codes).empty();
    EXPECT_EQ(says_why, !codes && execute == QuantExecute::int8);
    return codes;
  };
  set_vnni(false);
  EXPECT_FALSE(lenet(QuantExecute::fake));
  EXPECT_FALSE(lenet(QuantExecute::int8));
  EXPECT_TRUE(lenet(QuantExecute::int8_always));
  set_vnni(true);
  if (!uses_vnni()) return;
  EXPECT_TRUE(lenet(QuantExecute::int8));
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
      EXPECT_NE(text.find("int8_chain: c1 conv2d f32:i8:i32:u8 + relu + max_pool2d; c2 conv2d "
                          "u8:i8:i32:u8 + relu + max_pool2d"),
                std::string::npos)
          << text;
      EXPECT_NE(text.find("linear int8_direct u8:i8:i32:f32"), std::string::npos) << text;
      EXPECT_EQ(text.find("fake"), std::string::npos) << text;
      // If a single code were wrong, a logit would change by at least a hundredth.
      const DoubleLeNet in_double(*network);
      for (std::int64_t n = 0; n < 5; ++n) {
        const std::vector<double> right = in_double(x, n);
        for (std::int64_t k = 0; k < 10; ++k) {
          EXPECT_NEAR(codes.at(n * 10 + k), right[static_cast<std::size_t>(k)], 1e-5) << w << a;
        }
      }
    }
  }
}

TEST(IntegerExecution, AChainGivesTheBitsOfLayersThatStandAlone) {
  const Tensor x = normal({70, 1, 28, 28}, DType::f32, 9);
  const auto joined = model("lenet5", {70, 1, 28, 28}), single = lenet_of_single_layers();
  for (const auto& network : {joined, single}) calibrate(*network, bits(8, 8, true), x);
  std::string chain, layers;
  const Tensor left = infer(*joined, x, true, &chain), right = infer(*single, x, true, &layers);
  EXPECT_NE(chain.find("int8_chain: c1"), std::string::npos) << chain;
  EXPECT_EQ(layers.find("int8_chain"), std::string::npos) << layers;
  EXPECT_NE(layers.find("conv2d int8_direct f32:i8:i32:u8 + relu"), std::string::npos) << layers;
  EXPECT_NE(layers.find("max_pool2d on u8"), std::string::npos) << layers;
  for (std::int64_t i = 0; i < left.numel(); ++i) EXPECT_EQ(left.at(i), right.at(i));
}

// A transposed convolution has no integer kernel: it stays fake between layers on codes.
TEST(IntegerExecution, ATransposedConvolutionStaysFakeAmongLayersOnCodes) {
  Options conv;
  conv.set("out_channels", std::int64_t{32});
  conv.set("kernel_size", std::int64_t{3});
  const Shape shape{2, 32, 9, 9};
  LayerContext context;
  const auto network = build_layers({{.type = "conv2d", .name = "c1", .options = conv},
                                     {.type = "relu", .name = "r1", .options = {}},
                                     {.type = "conv_transpose2d", .name = "up", .options = conv},
                                     {.type = "conv2d", .name = "c2", .options = conv}},
                                    shape, context);
  const Tensor x = normal(shape, DType::f32, 9);
  calibrate(*network, bits(8, 8, true), x);
  std::string text;
  const Tensor codes = infer(*network, x, true, &text), fake = infer(*network, x, false);
  EXPECT_NE(text.find("up  conv_transpose2d "), std::string::npos) << text;
  EXPECT_NE(text.find("conv2d int8"), std::string::npos) << text;
  double error = 0, size = 0;
  for (std::int64_t i = 0; i < codes.numel(); ++i) {
    error += std::pow(codes.at(i) - fake.at(i), 2);
    size += std::pow(fake.at(i), 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.02) << text;
}

TEST(IntegerExecution, ResidualNetworksGiveNearlyTheLogitsOfFakeQuantisation) {
  // With residual_bits 0, the result of a block stays f32 in the residual sum, and is rounded to
  // codes only for the next layer.
  using Case = std::pair<const char*, std::int64_t>;
  for (const auto& [name, residual_bits] :
       {Case{"resnet18", 8}, {"resnet18", 0}, {"mobilenet_v2", 8}, {"mobilenet_v1", 8}}) {
    const Shape shape{2, 3, 32, 32};
    const auto network = model(name, shape);
    const Tensor x = normal(shape, DType::f32, 9);
    QuantConfig config = bits(8, 8, true);
    config.residual_bits = residual_bits;
    calibrate(*network, config, x);
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
