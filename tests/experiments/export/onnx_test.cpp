// SPDX-License-Identifier: Apache-2.0
// onnx_test.cpp: reads exported ONNX files back and checks their operators, attributes and
// constants. A network without an ONNX equivalent must be refused.
// experiments/baselines/onnx_vs_convscope.py compares results.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "experiments/config/build.h"
#include "experiments/export/onnx_network.h"
#include "layers/conv2d/conv2d.h"
#include "layers/sequential.h"
#include "quant/quantized_file.h"
#include "tests/experiments/export/protobuf_reader.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

std::shared_ptr<Module> network_of(const std::string& model, const std::string& quant,
                                   const Shape& sample) {
  const ExperimentConfig config = parse_config_text(
      cat("data: {set: synthetic_digits}\n", model, quant.empty() ? "" : "\nquant: " + quant, "\n"),
      "onnx.yaml");
  const auto out = build_model(config, sample, 10);
  Shape batch = {2};
  for (const std::int64_t size : sample) batch.push_back(size);
  out->forward(Variable(normal(batch, DType::f32)));  // calibrates, and updates the running means
  return out;
}

ProtobufMessage graph_of(Module& network, const Shape& sample) {
  return ProtobufMessage(onnx_bytes(onnx_network(network, sample, "net"))).message(7);
}

// Returns "Conv(images, c1.weight, c1.bias) -> c1" for each node.
std::vector<std::string> lines_of(const ProtobufMessage& graph) {
  std::vector<std::string> out;
  for (const ProtobufMessage& node : graph.messages(1)) {
    out.push_back(cat(node.text(4), "(", join(node.texts(1)), ") -> ", join(node.texts(2))));
  }
  return out;
}

std::string attributes_of(const ProtobufMessage& graph, const std::string& name) {
  std::string out;
  for (const ProtobufMessage& node : graph.messages(1)) {
    if (node.text(3) != name) continue;
    for (const ProtobufMessage& attribute : node.messages(5)) {
      out += attribute.text(1) + "=";
      if (attribute.number(20) == 1) out += cat(attribute.real(2));
      if (attribute.number(20) == 2) out += cat(attribute.number(3));
      if (attribute.number(20) == 3) out += attribute.text(4);
      if (attribute.number(20) == 7) {
        std::vector<std::string> all;
        for (const std::int64_t one : attribute.numbers(8)) all.push_back(cat(one));
        out += join(all, ",");
      }
      out += " ";
    }
  }
  return out;
}

struct Constant {
  std::vector<std::int64_t> sizes;
  std::int64_t type = 0;
  std::string bytes;
};
Constant constant_of(const ProtobufMessage& graph, const std::string& name) {
  for (const ProtobufMessage& tensor : graph.messages(5)) {
    if (tensor.text(8) == name) return {tensor.numbers(1), tensor.number(2), tensor.text(9)};
  }
  ADD_FAILURE() << "no constant " << name;
  return {};
}

// Checks that each value is written exactly once, before any node reads it, and that every constant
// is read.
void expect_whole(const ProtobufMessage& graph) {
  std::set<std::string> there, unread;
  for (const ProtobufMessage& tensor : graph.messages(5)) {
    EXPECT_TRUE(there.insert(tensor.text(8)).second) << tensor.text(8);
    unread.insert(tensor.text(8));
    std::int64_t count = 1;
    for (const std::int64_t size : tensor.numbers(1)) count *= size;
    const std::int64_t each = tensor.number(2) == 1 ? 4 : 1;
    EXPECT_EQ(static_cast<std::int64_t>(tensor.text(9).size()), count * each) << tensor.text(8);
  }
  there.insert(graph.message(11).text(1));
  std::set<std::string> names;
  for (const ProtobufMessage& node : graph.messages(1)) {
    EXPECT_TRUE(names.insert(node.text(3)).second) << node.text(3);
    for (const std::string& input : node.texts(1)) {
      if (input.empty()) continue;  // an optional input that is left out
      EXPECT_TRUE(there.contains(input)) << node.text(3) << " reads " << input;
      unread.erase(input);
    }
    for (const std::string& output : node.texts(2)) {
      EXPECT_TRUE(there.insert(output).second) << output;
    }
  }
  EXPECT_TRUE(there.contains(graph.message(12).text(1)));
  EXPECT_TRUE(unread.empty()) << join({unread.begin(), unread.end()});
}

const std::string kLeNet = "model: {type: lenet5}";

TEST(Onnx, IsAModelOfOpset17) {
  const auto network = network_of(kLeNet, "", {1, 28, 28});
  const ProtobufMessage model(onnx_bytes(onnx_network(*network, {1, 28, 28}, "net")));
  EXPECT_EQ(model.fields(), (std::vector<int>{1, 2, 3, 7, 8}));
  EXPECT_EQ(model.number(1), 8);
  EXPECT_EQ(model.text(2), "convscope");
  EXPECT_EQ(model.message(8).number(2), 17);
  EXPECT_EQ(model.message(8).text(1), "");
  const ProtobufMessage graph = model.message(7);
  EXPECT_EQ(graph.text(2), "net");
  const auto shape_of = [&](int field) {
    std::string out = graph.message(field).text(1);
    const ProtobufMessage tensor = graph.message(field).message(2).message(1);
    EXPECT_EQ(tensor.number(1), 1);  // f32
    for (const ProtobufMessage& size : tensor.message(2).messages(1)) {
      out += size.texts(2).empty() ? cat(" ", size.number(1)) : " " + size.text(2);
    }
    return out;
  };
  EXPECT_EQ(shape_of(11), "images N 1 28 28");
  EXPECT_EQ(shape_of(12), "logits N 10");
}

TEST(Onnx, OfLeNetHasItsLayersAndItsWeights) {
  const auto network = network_of(kLeNet, "", {1, 28, 28});
  const ProtobufMessage graph = graph_of(*network, {1, 28, 28});
  expect_whole(graph);
  const std::vector<std::string> lines = lines_of(graph);
  ASSERT_EQ(lines.size(), 12u) << join(lines, "\n");
  EXPECT_EQ(lines[0], "Conv(images, c1.weight, c1.bias) -> c1");
  EXPECT_TRUE(lines[2].starts_with("MaxPool(")) << lines[2];
  EXPECT_TRUE(lines[6].starts_with("Flatten(")) << lines[6];
  EXPECT_TRUE(lines.back().ends_with(", f5.weight, f5.bias) -> logits")) << lines.back();
  EXPECT_EQ(attributes_of(graph, "c1"),
            "kernel_shape=5,5 strides=1,1 pads=0,0,0,0 dilations=1,1 group=1 ");
  EXPECT_EQ(attributes_of(graph, "f5"), "transB=1 ");
  const Constant weight = constant_of(graph, "c2.weight");
  EXPECT_EQ(weight.sizes, (std::vector<std::int64_t>{16, 6, 5, 5}));
  EXPECT_EQ(weight.type, 1);
  for (const NamedParameter& p : network->parameters()) {
    const Constant constant = constant_of(graph, p.name);
    EXPECT_EQ(
        std::memcmp(constant.bytes.data(), p.variable.value().raw_data(), constant.bytes.size()), 0)
        << p.name;
  }
}

TEST(Onnx, OfAQuantisedLeNetHasCodesAndSteps) {
  const auto network = network_of(kLeNet, "{w_bits: 4, a_bits: 3, per_channel: true}", {1, 28, 28});
  const ProtobufMessage graph = graph_of(*network, {1, 28, 28});
  expect_whole(graph);
  const std::vector<std::string> lines = lines_of(graph);
  // The images are quantised to signed 8-bit integers. These fill the range of the ONNX type, so
  // the graph needs no Clip node.
  EXPECT_EQ(lines[0], "QuantizeLinear(images, c1.input.step, c1.input.zero) -> c1.input.codes");
  EXPECT_EQ(lines[1], "DequantizeLinear(c1.input.codes, c1.input.step, c1.input.zero) -> c1.input");
  EXPECT_EQ(lines[2],
            "DequantizeLinear(c1.weight.codes, c1.weight.step, c1.weight.zero) -> c1.weight");
  EXPECT_EQ(lines[3], "Conv(c1.input, c1.weight) -> c1.sums");
  EXPECT_EQ(lines[4], "Add(c1.sums, c1.bias) -> c1");
  EXPECT_EQ(constant_of(graph, "c1.bias").sizes, (std::vector<std::int64_t>{6, 1, 1}));
  EXPECT_EQ(constant_of(graph, "f3.bias").sizes, std::vector<std::int64_t>{120});
  EXPECT_EQ(attributes_of(graph, "c1.weight"), "axis=0 ");
  constexpr std::int64_t kU8 = 2, kI8 = 3;
  EXPECT_EQ(constant_of(graph, "c1.input.zero").type, kI8);
  EXPECT_EQ(constant_of(graph, "c2.input.zero").type, kU8);
  EXPECT_EQ(constant_of(graph, "c2.input.zero").sizes.size(), 0u);
  EXPECT_EQ(constant_of(graph, "c2.weight.step").sizes, std::vector<std::int64_t>{16});
  const auto float_of = [&](const std::string& name) {
    float out = 0;
    std::memcpy(&out, constant_of(graph, name).bytes.data(), 4);
    return out;
  };
  EXPECT_EQ(float_of("c2.input.least"), 0);
  EXPECT_EQ(float_of("c2.input.most"), 7 * float_of("c2.input.step"));
  for (const QuantizedTensor& tensor : quantized_tensors(*network)) {
    if (!tensor.is_weight) continue;
    Module* layer = nullptr;
    for (const NamedModule& part : network->modules()) {
      if (part.name == tensor.layer) layer = part.module;
    }
    const QuantizedWeight wanted = quantized_weight(*layer, *tensor.quantizer, tensor.layer);
    const Constant codes = constant_of(graph, tensor.layer + ".weight.codes");
    EXPECT_EQ(codes.type, kI8);
    ASSERT_EQ(codes.bytes.size(), wanted.codes.size());
    EXPECT_EQ(std::memcmp(codes.bytes.data(), wanted.codes.data(), codes.bytes.size()), 0);
  }
}

// An int8 kernel may add two products in a 16-bit register. With u8 images and 7-bit weights the
// sum of two products fits into 16 bits, so no kernel saturates.
TEST(Onnx, ReducesTheRangeOfWeightsOnRequest) {
  for (const char* channels : {"true", "false"}) {
    const auto network =
        network_of(kLeNet, cat("{w_bits: 8, a_bits: 8, per_channel: ", channels, "}"), {1, 28, 28});
    const OnnxGraph plain = onnx_network(*network, {1, 28, 28}, "net");
    EXPECT_EQ(plain.wide, 5);
    EXPECT_EQ(plain.narrowed, 0);
    const OnnxGraph made = onnx_network(*network, {1, 28, 28}, "net", {.reduce_range = true});
    EXPECT_EQ(made.wide, 0);
    EXPECT_EQ(made.narrowed, 5);
    const ProtobufMessage wide = ProtobufMessage(onnx_bytes(plain)).message(7);
    const ProtobufMessage graph = ProtobufMessage(onnx_bytes(made)).message(7);
    expect_whole(graph);
    for (const std::string layer : {"c1", "c2", "f3", "f4", "f5"}) {
      const std::string codes = constant_of(graph, layer + ".weight.codes").bytes;
      const std::string before = constant_of(wide, layer + ".weight.codes").bytes;
      ASSERT_EQ(codes.size(), before.size());
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const int q = static_cast<signed char>(codes[i]);
        const int full = static_cast<signed char>(before[i]);
        ASSERT_LE(std::abs(255 * q * 2), 32767) << layer << " " << i;
        ASSERT_LE(std::abs(2 * q - full), full > 126 ? 2 : 1) << layer << " " << i;
      }
      const std::string now = constant_of(graph, layer + ".weight.step").bytes;
      const std::string then = constant_of(wide, layer + ".weight.step").bytes;
      ASSERT_EQ(now.size(), then.size());
      for (std::size_t i = 0; i < now.size(); i += sizeof(float)) {
        float one = 0, half = 0;
        std::memcpy(&one, now.data() + i, sizeof one);
        std::memcpy(&half, then.data() + i, sizeof half);
        EXPECT_EQ(one, 2 * half) << layer;
      }
    }
  }
  const auto few = network_of(kLeNet, "{w_bits: 7, a_bits: 8, first_last_bits: 7}", {1, 28, 28});
  const OnnxGraph as_it_is = onnx_network(*few, {1, 28, 28}, "net", {.reduce_range = true});
  EXPECT_EQ(as_it_is.wide + as_it_is.narrowed, 0);
}

TEST(Onnx, OfResidualNetworksAddsWhatTheyAdd) {
  const std::string model = "model: {type: resnet18, stem: cifar, widths: [2, 3, 4, 4]}";
  const auto network = network_of(model, "{w_bits: 4, a_bits: 4}", {1, 8, 8});
  const ProtobufMessage graph = graph_of(*network, {1, 8, 8});
  expect_whole(graph);
  const std::string lines = join(lines_of(graph), "\n");
  for (const char* line :
       {"Add(layer1.0.bn2, layer1.0.input) -> layer1.0.sum\n",
        "Relu(layer1.0.sum) -> layer1.0.relu\n",
        "QuantizeLinear(layer1.1.relu, layer2.0.input.step, layer2.0.input.zero) -> "
        "layer2.0.input.codes\n",
        "Clip(layer2.0.input, layer2.0.conv1.input.least, layer2.0.conv1.input.most) -> ",
        "Add(layer2.0.bn2, layer2.0.shortcut) -> layer2.0.sum\n",
        "BatchNormalization(layer2.0.downsample.0, layer2.0.downsample.1.weight, ",
        "GlobalAveragePool("}) {
    EXPECT_NE(lines.find(line), std::string::npos) << line << " in\n" << lines;
  }
  EXPECT_EQ(attributes_of(graph, "bn1"), "epsilon=1e-05 ");
  EXPECT_EQ(attributes_of(graph, "layer2.0.downsample.0"),
            "kernel_shape=1,1 strides=2,2 pads=0,0,0,0 dilations=1,1 group=1 ");
}

TEST(Onnx, OfMobileNetsHasGroupsAndClips) {
  const auto v1 = network_of("model: {type: mobilenet_v1, stem: cifar, width_multiplier: 0.01}", "",
                             {1, 16, 16});
  const ProtobufMessage first = graph_of(*v1, {1, 16, 16});
  expect_whole(first);
  EXPECT_EQ(attributes_of(first, "block2.depthwise"),
            "kernel_shape=3,3 strides=2,2 pads=1,1,1,1 dilations=1,1 group=8 ");
  const auto v2 = network_of("model: {type: mobilenet_v2, stem: cifar, width_multiplier: 0.01}", "",
                             {1, 16, 16});
  const ProtobufMessage second = graph_of(*v2, {1, 16, 16});
  expect_whole(second);
  const std::string lines = join(lines_of(second), "\n");
  EXPECT_NE(lines.find("Clip(features.0.1, features.0.2.least, features.0.2.most)"),
            std::string::npos)
      << lines;
  EXPECT_NE(lines.find("Add(features.3.conv.3, features.2.conv.3) -> features.3.sum"),
            std::string::npos)
      << lines;
}

// After folding, the two constants w and b must satisfy: conv(x, w) + b equals convolution plus
// batch norm, computed in double.
TEST(Onnx, FoldsBatchNormsIntoConvolutions) {
  const auto network = network_of(
      "layers: [{type: conv2d, name: c, out_channels: 3, kernel_size: 3, bias: true}, "
      "{type: batch_norm2d, name: n}, {type: flatten}, {type: linear, name: f, out_features: 10}]",
      "", {2, 5, 5});
  const Shape sample = {2, 5, 5};
  const OnnxGraph made = onnx_network(*network, sample, "net", {.fold_batch_norm = true});
  EXPECT_EQ(made.folded, 1);
  const ProtobufMessage graph = ProtobufMessage(onnx_bytes(made)).message(7);
  expect_whole(graph);
  EXPECT_EQ(lines_of(graph)[0], "Conv(images, c.weight, c.bias) -> c");
  EXPECT_EQ(lines_of(graph)[1].substr(0, 8), "Flatten(");

  const NoGrad no_grad;
  network->eval();
  auto& sequence = static_cast<Sequential&>(*network);
  const Variable x(normal({4, 2, 5, 5}, DType::f32));
  const Tensor want = sequence.layer(1).forward(sequence.layer(0).forward(x)).value();
  Tensor w, b;
  for (const NamedTensor& constant : made.constants) {
    if (constant.name == "c.weight") w = constant.tensor;
    if (constant.name == "c.bias") b = constant.tensor;
  }
  const Tensor got = conv2d(x, Variable(w), Variable(b)).value();
  ASSERT_EQ(got.shape(), want.shape());
  for (std::int64_t i = 0; i < want.numel(); ++i) EXPECT_NEAR(got.at(i), want.at(i), 2e-5);
}

TEST(Onnx, FoldsAllBatchNormsOfTheModelsButThoseOfQuantisedWeights) {
  const auto nodes_of = [](const std::string& model, const std::string& quant) {
    const auto network = network_of(model, quant, {1, 16, 16});
    const OnnxGraph made = onnx_network(*network, {1, 16, 16}, "net", {.fold_batch_norm = true});
    expect_whole(ProtobufMessage(onnx_bytes(made)).message(7));
    int left = 0;
    for (const OnnxNode& node : made.nodes) left += node.op == "BatchNormalization" ? 1 : 0;
    return std::pair(made.folded, left);
  };
  const std::string resnet = "model: {type: resnet18, stem: cifar, widths: [2, 3, 4, 4]}";
  EXPECT_EQ(nodes_of(resnet, ""), std::pair(20, 0));
  EXPECT_EQ(nodes_of("model: {type: mobilenet_v1, stem: cifar, width_multiplier: 0.01}", ""),
            std::pair(27, 0));
  EXPECT_EQ(nodes_of("model: {type: mobilenet_v2, stem: cifar, width_multiplier: 0.01}", ""),
            std::pair(52, 0));
  const auto [folded, left] = nodes_of(resnet, "{w_bits: 4, a_bits: 4}");
  EXPECT_EQ(folded + left, 20);
  EXPECT_GT(left, 15);  // the first layer may stay in f32
}

std::string layers(const std::string& text) {
  return "layers: [" + text + ", {type: flatten}, {type: linear, name: f, out_features: 10}]";
}

TEST(Onnx, PutsTheRestOfAWindowIntoThePadding) {
  const auto network =
      network_of(layers("{type: conv2d, name: c, out_channels: 2, kernel_size: [3, 4], "
                        "padding: [0, 2, 1, 2]}, "
                        "{type: max_pool2d, name: p, kernel_size: 3, stride: 2, ceil_mode: true}, "
                        "{type: avg_pool2d, name: a, kernel_size: 2, stride: 1, padding: 1, "
                        "count_include_pad: false}"),
                 "", {1, 6, 7});
  const ProtobufMessage graph = graph_of(*network, {1, 6, 7});
  expect_whole(graph);
  EXPECT_EQ(attributes_of(graph, "c"),
            "kernel_shape=3,4 strides=1,1 pads=0,1,2,2 dilations=1,1 group=1 ");
  // The input has 6 rows and 7 columns. The windows of the pool cover rows 0-2, 2-4 and 4-6,
  // and columns 0-2, 2-4 and 4-6.
  EXPECT_EQ(attributes_of(graph, "p"), "kernel_shape=3,3 strides=2,2 pads=0,0,1,0 ");
  EXPECT_EQ(attributes_of(graph, "a"),
            "kernel_shape=2,2 strides=1,1 pads=1,1,1,1 count_include_pad=0 ");
}

// experiments/baselines/onnx_models.py compares the numbers of these layers with ONNX Runtime.
TEST(Onnx, WritesNormsActivationsAndResizesWithTheirOperators) {
  const auto network = network_of(
      layers("{type: conv2d, name: c, out_channels: 4, kernel_size: 3}, "
             "{type: layer_norm, name: ln, eps: 0.5}, {type: gelu, name: g}, "
             "{type: group_norm, name: gn, groups: 2}, {type: silu, name: s}, "
             "{type: upsample, name: u, scale: 2, mode: bilinear}, {type: hard_swish, name: h}, "
             "{type: layer_scale, name: ls}, {type: stochastic_depth, name: sd}, "
             "{type: channel_shuffle, name: cs, groups: 2}, "
             "{type: squeeze_excitation, name: se}, {type: softmax, name: sm}, "
             "{type: adaptive_max_pool2d, name: am, output_size: 4}, "
             "{type: global_avg_pool2d, name: ga}, {type: global_max_pool2d, name: gm}"),
      "", {1, 8, 8});
  const ProtobufMessage graph = graph_of(*network, {1, 8, 8});
  expect_whole(graph);
  EXPECT_EQ(attributes_of(graph, "ln.norm"), "axis=-1 epsilon=0.5 ");
  EXPECT_EQ(attributes_of(graph, "u"),
            "mode=linear nearest_mode=floor coordinate_transformation_mode=half_pixel ");
  EXPECT_EQ(attributes_of(graph, "cs.turns"), "perm=0,2,1,3 ");
  EXPECT_EQ(attributes_of(graph, "am"), "kernel_shape=3,3 strides=3,3 ");
  EXPECT_EQ(attributes_of(graph, "sm"), "axis=1 ");
}

TEST(Onnx, HasTransposedConvolutions) {
  const std::string up = layers(
      "{type: conv_transpose2d, name: up, out_channels: 4, kernel_size: [3, 2], stride: [2, 3], "
      "padding: [1, 0, 0, 1], output_padding: [1, 2], groups: 2}");
  const auto network = network_of(up, "", {2, 6, 7});
  const ProtobufMessage graph = graph_of(*network, {2, 6, 7});
  expect_whole(graph);
  EXPECT_EQ(attributes_of(graph, "up"),
            "kernel_shape=3,2 strides=2,3 pads=1,0,0,1 dilations=1,1 group=2 output_padding=1,2 ");
  const auto rounded = network_of(up, "{w_bits: 4, a_bits: 3, per_channel: true}", {2, 6, 7});
  const ProtobufMessage codes = graph_of(*rounded, {2, 6, 7});
  expect_whole(codes);
  const std::vector<std::string> lines = lines_of(codes);
  EXPECT_EQ(lines[2],
            "DequantizeLinear(up.weight.codes, up.weight.step, up.weight.zero) -> up.weight");
  EXPECT_EQ(lines[3], "ConvTranspose(up.input, up.weight) -> up.sums");
  EXPECT_EQ(lines[4], "Add(up.sums, up.bias) -> up");
  EXPECT_EQ(constant_of(codes, "up.weight.step").sizes, std::vector<std::int64_t>{2});
}

TEST(Onnx, RefusesWhatItCannotSay) {
  const auto refused = [](const std::string& layer, const std::string& quant,
                          const std::string& sentence) {
    const Shape sample{1, 9, 9};
    const ExperimentConfig config = parse_config_text(
        cat("data: {set: synthetic_digits}\n", layers(layer), quant, "\n"), "onnx.yaml");
    const auto network = build_model(config, sample, 10);
    EXPECT_ERROR(ErrorKind::kConfig, sentence, onnx_network(*network, sample, "net"));
  };
  refused("{type: adaptive_max_pool2d, name: a, output_size: [2, 2]}", "",
          "[onnx] expected layers that ONNX, opset 17, can express, got 'a': adaptive_max_pool2d "
          "with windows of several sizes, [1,1,9,9] to [1,1,2,2]");
  refused("{type: upsample, name: u, size: 13}", "",
          "got 'u': upsample to a size whose factor is not exact in f32, [1,1,9,9] to "
          "[1,1,13,13]");
  refused("{type: deform_conv2d, name: d, out_channels: 2, kernel_size: 3}", "",
          "opset 17, can express, got 'd': deform_conv2d, which ONNX has from opset 19 on");
  refused(
      "{type: conv2d, name: c, out_channels: 2, kernel_size: 3, padding: 1, padding_mode: "
      "reflect}",
      "", "got 'c': conv2d with padding_mode reflect");
  refused("{type: avg_pool2d, name: a, kernel_size: 2, stride: 2, ceil_mode: true}", "",
          "got 'a': avg_pool2d whose last window reaches beyond the padding (ceil_mode)");
  refused("{type: adaptive_avg_pool2d, name: a, output_size: [2, 2]}", "",
          "got 'a': adaptive_avg_pool2d with windows of several sizes, [1,1,9,9] to [1,1,2,2]");
  refused("{type: relu, name: logits}", "",
          "got 'logits': the name of an input or output of the network");
  refused("{type: relu, name: r}", "\nquant: {}",
          "expected calibrated steps, because codes are counted in them, got 'f.input' whose "
          "quantiser has not begun");
}

}  // namespace
}  // namespace convscope::testing
