// SPDX-License-Identifier: Apache-2.0
// quantize_network_test.cpp: quantisers added to a LeNet, and its training steps.
#include "quant/quantize_network.h"

#include "framework/memory/memory.h"
#include "framework/ops/elementwise.h"
#include "layers/conv_transpose2d/conv_transpose2d.h"
#include "layers/layer_types.h"
#include "layers/losses/cross_entropy.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

using namespace testing;

std::shared_ptr<Module> lenet(const std::string& activation = "relu") {
  LayerContext context;
  context.seed = 3;
  context.conv_policy = [](const std::string&) { return Conv2dPolicy{}; };
  const ModelType& type = model_types().get("lenet5");
  Options options(type.fields);
  options.set("activation", activation);
  return type.build(options, {1, 1, 28, 28}, 10, context);
}

// Returns "c1:s8/s8" = input/weight by layer, s signed, u unsigned.
std::string summary(Module& network) {
  std::string out;
  for (const QuantizedTensor& tensor : quantized_tensors(network)) {
    const QuantizerOptions& options = tensor.quantizer->options();
    out += cat(tensor.is_weight ? "/"
               : out.empty()    ? tensor.layer + ":"
                                : " " + tensor.layer + ":",
               options.is_signed ? "s" : "u", options.bits);
  }
  return out;
}

TEST(QuantizeNetwork, GivesLeNetUnsignedInputsAfterReluAndEightBitsAtBothEnds) {
  const auto network = lenet();
  apply_quantization(*network, {.w_bits = 4, .a_bits = 3}, {});
  EXPECT_EQ(summary(*network), "c1:s8/s8 c2:u3/s4 f3:u3/s4 f4:u3/s4 f5:u8/s8");
}

TEST(QuantizeNetwork, GivesLeNetWithTanhSignedInputs) {
  const auto network = lenet("tanh");
  apply_quantization(*network, {.w_bits = 4, .a_bits = 4, .first_last_bits = 6}, {});
  EXPECT_EQ(summary(*network), "c1:s6/s6 c2:s4/s4 f3:s4/s4 f4:s4/s4 f5:s6/s6");
}

TEST(QuantizeNetwork, GivesUnsignedInputsAfterRelu6) {
  LayerContext context;
  Options linear;
  linear.set("out_features", std::int64_t{3});
  const auto network = build_layers({{.type = "linear", .name = "f1", .options = linear},
                                     {.type = "relu6", .name = "r", .options = {}},
                                     {.type = "linear", .name = "f2", .options = linear}},
                                    {1, 4}, context);
  apply_quantization(*network, {.w_bits = 4, .a_bits = 4}, {});
  EXPECT_EQ(summary(*network), "f1:s8/s8 f2:u8/s8");
}

TEST(QuantizeNetwork, LetsALayerHaveItsOwnBits) {
  const auto network = lenet();
  QuantConfig config{.w_bits = 4, .a_bits = 4};
  config.per_layer["c1"] = {.w_bits = 5, .a_bits = {}};
  config.per_layer["f4"] = {.w_bits = 2, .a_bits = 3};
  apply_quantization(*network, config, {});
  EXPECT_EQ(summary(*network), "c1:s8/s5 c2:u4/s4 f3:u4/s4 f4:u3/s2 f5:u8/s8");
}

TEST(QuantizeNetwork, GivesEachOutputChannelItsStep) {
  const auto network = lenet();
  apply_quantization(*network, {.per_channel = true}, {});
  network->forward(Variable(normal({2, 1, 28, 28}, DType::f32)));
  std::map<std::string, std::int64_t> steps;
  for (const QuantizedTensor& tensor : quantized_tensors(*network)) {
    if (tensor.is_weight) steps[tensor.layer] = tensor.quantizer->steps().numel();
    if (!tensor.is_weight) {
      EXPECT_EQ(tensor.quantizer->steps().numel(), 1);
    }
  }
  EXPECT_EQ(steps, (std::map<std::string, std::int64_t>{
                       {"c1", 6}, {"c2", 16}, {"f3", 120}, {"f4", 84}, {"f5", 10}}));
}

TEST(QuantizeNetwork, RoundsInputAndWeightOfATransposedConvolution) {
  LayerContext context;
  Options options;
  options.set("out_channels", std::int64_t{5});
  options.set("kernel_size", std::int64_t{3});
  options.set("stride", std::int64_t{2});
  const auto network =
      build_layers({{.type = "relu", .name = "r", .options = {}},
                    {.type = "conv_transpose2d", .name = "up", .options = options}},
                   {1, 3, 4, 6}, context);
  apply_quantization(*network, {.first_last_bits = 3, .per_channel = true}, {});
  EXPECT_EQ(summary(*network), "up:u3/s3");
  const Tensor x = normal({2, 3, 4, 6}, DType::f32);
  const Tensor got = network->forward(Variable(x)).value();
  const std::vector<QuantizedTensor> quantizers = quantized_tensors(*network);
  EXPECT_EQ(quantizers[1].quantizer->steps().numel(), 3);  // of each input channel
  const auto parameters = network->parameters();
  const Variable input = quantizers[0].quantizer->forward(relu(Variable(x)));
  const Variable weight = quantizers[1].quantizer->forward(parameters[0].variable);
  EXPECT_TRUE(same_bits(got, conv_transpose2d(input, weight, parameters[1].variable,
                                              {.conv = {.stride_h = 2, .stride_w = 2}})
                                 .value()));
}

TEST(QuantizeNetwork, EightBitsStayNearTheFloatNetwork) {
  const Tensor x = normal({8, 1, 28, 28}, DType::f32);
  const Tensor want = lenet()->forward(Variable(x)).value();
  double error[2], scale = 0;
  for (int bits : {8, 2}) {
    const auto network = lenet();
    apply_quantization(*network, {.w_bits = bits, .a_bits = bits, .first_last_bits = bits}, {});
    const Tensor got = network->forward(Variable(x)).value();
    double sum = 0;
    scale = 0;
    for (std::int64_t i = 0; i < want.numel(); ++i) {
      sum += std::pow(got.at(i) - want.at(i), 2);
      scale += std::pow(want.at(i), 2);
    }
    error[bits == 8 ? 0 : 1] = std::sqrt(sum / scale);
  }
  EXPECT_LT(error[0], 0.03);
  EXPECT_GT(error[1], 0.1);
}

TEST(QuantizeNetwork, EveryWeightAndStepReceivesAGradient) {
  const auto network = lenet();
  apply_quantization(*network, {.w_bits = 4, .a_bits = 4}, {});
  const Tensor labels = Tensor::zeros({4}, DType::i32);
  softmax_cross_entropy(network->forward(Variable(normal({4, 1, 28, 28}, DType::f32))), labels)
      .backward();
  for (const NamedParameter& parameter : network->parameters()) {
    ASSERT_TRUE(parameter.variable.grad().defined()) << parameter.name;
    double largest = 0;
    for (std::int64_t i = 0; i < parameter.variable.grad().numel(); ++i) {
      largest = std::max(largest, std::abs(parameter.variable.grad().at(i)));
    }
    EXPECT_GT(largest, 0) << parameter.name;
  }
}

TEST(QuantizeNetwork, AStepAsksTheSystemForNoMemoryAfterTheFirst) {
  const auto network = lenet();
  apply_quantization(*network, {.w_bits = 4, .a_bits = 4}, {});
  const Tensor labels = Tensor::zeros({4}, DType::i32), x = normal({4, 1, 28, 28}, DType::f32);
  const auto step = [&] {
    network->zero_grad();
    softmax_cross_entropy(network->forward(Variable(x)), labels).backward();
  };
  for (int i = 0; i < 3; ++i) step();
  const std::int64_t before = memory_stats(Device{}).system_allocations;
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(memory_stats(Device{}).system_allocations, before);
}

TEST(QuantizeNetwork, SaysWhichLayersThereAre) {
  QuantConfig config;
  config.per_layer["f33"] = {.w_bits = 4, .a_bits = {}};
  EXPECT_ERROR(ErrorKind::kConfig,
               "[quant.per_layer] expected the name of a layer with a weight, got 'f33'; did you "
               "mean 'f3'? (known: c1, c2, f3, f4, f5)",
               apply_quantization(*lenet(), config, {}));
}

TEST(QuantizeNetwork, KnowsItsOwnTensorsByName) {
  EXPECT_TRUE(belongs_to_quantizer("c1.weight_quantizer.log_step"));
  EXPECT_TRUE(belongs_to_quantizer("features.c1.input_quantizer.batches_seen"));
  EXPECT_FALSE(belongs_to_quantizer("c1.weight"));
}

}  // namespace
}  // namespace convscope
