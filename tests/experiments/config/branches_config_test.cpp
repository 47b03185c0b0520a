// SPDX-License-Identifier: Apache-2.0
// branches_config_test.cpp: tests configs whose layers name their inputs or use blocks, and what is
// done with such networks: quantisation, pruning, export, resumed runs.
#include <gtest/gtest.h>

#include "experiments/config/build.h"
#include "experiments/export/onnx_network.h"
#include "experiments/run_folder/layer_table.h"
#include "layers/layer_graph/layer_graph.h"
#include "layers/plan/step_plan.h"
#include "quant/quantize_network.h"
#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

const std::string kConfigs = CONVSCOPE_SOURCE_DIR "/experiments/configs/";
const Shape kSample{1, 28, 28};

ExperimentConfig config_of(const std::string& name, const std::vector<std::string>& more = {}) {
  return load_config(kConfigs + name + ".yaml", more);
}

std::vector<std::string> names_of(const ExperimentConfig& config) {
  std::vector<std::string> out;
  for (const LayerSpec& layer : config.model.layers) out.push_back(layer.name);
  return out;
}

ExperimentConfig parsed(const std::string& network) {
  return parse_config_text("data: {set: synthetic_digits}\n" + network, "exp.yaml");
}

TEST(Blocks, HaveNamesThatTellThePath) {
  const ExperimentConfig config = config_of("synthetic_residual_blocks");
  const std::vector<std::string> names = names_of(config);
  ASSERT_EQ(names.size(), 33u);
  EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 9),
            (std::vector<std::string>{"stem", "stage1.0.conv1", "stage1.0.bn1", "stage1.0.relu_1",
                                      "stage1.0.conv2", "stage1.0.bn2", "stage1.0.add_1",
                                      "stage1.0.relu_2", "stage1.1.conv1"}));
  const auto from = [&](std::size_t i) { return join(config.model.layers[i].from); };
  EXPECT_EQ(from(1), "stem");
  EXPECT_EQ(from(6), "stage1.0.bn2, stem");
  EXPECT_EQ(from(8), "stage1.0.relu_2");
  EXPECT_EQ(config.model.layers[8].options.integer("out_channels"), 8);
  EXPECT_EQ(config.model.layers[16].options.integer("out_channels"), 16);
  const auto network = build_model(config, kSample, 10);
  EXPECT_EQ(network->kind(), "layer_graph");
  EXPECT_EQ(network->parameters()[2].name, "stage1.0.conv1.weight");
}

TEST(Blocks, ReadOtherBlocksAndHaveSeveralInputs) {
  const ExperimentConfig config = parsed(
      "blocks:\n"
      "  sum: {layers: [{type: mul, name: m, from: [input.1, input.0]}, {block: twice}]}\n"
      "  twice: {parameters: {kind: tanh}, layers: [{type: $kind}, {type: $kind}]}\n"
      "layers:\n"
      "  - {type: relu}\n"
      "  - {block: sum, from: [input, relu_1]}\n"
      "  - {type: add, from: [sum_1, sum_1.m]}\n"
      "  - {block: twice, name: t, kind: sigmoid, repeat: 2}\n"
      "  - {type: add, from: [t.0, t]}\n");
  std::vector<std::string> lines;
  for (const LayerSpec& layer : config.model.layers) {
    lines.push_back(cat(layer.name, " ", layer.type, " of ", join(layer.from)));
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{
                "relu_1 relu of ", "sum_1.m mul of relu_1, input",
                "sum_1.twice_1.tanh_1 tanh of sum_1.m", "sum_1.twice_1.tanh_2 tanh of ",
                "add_1 add of sum_1.twice_1.tanh_2, sum_1.m", "t.0.sigmoid_1 sigmoid of add_1",
                "t.0.sigmoid_2 sigmoid of ", "t.1.sigmoid_1 sigmoid of t.0.sigmoid_2",
                "t.1.sigmoid_2 sigmoid of ", "add_2 add of t.0.sigmoid_2, t.1.sigmoid_2"}));
}

TEST(Blocks, ComputeWithTheirParameters) {
  const ExperimentConfig config = parsed(
      "blocks:\n"
      "  inner: {parameters: {n: null, p: 0.25, kind: relu}, layers: [\n"
      "    {type: $kind, name: begin}, {type: upsample, name: up, size: [$n, $n / 2 - 1]},\n"
      "    {type: dropout, name: drop, p: $p * 2}]}\n"
      "  b: {parameters: {w: 8, wide: $w * 4, n: 6}, layers: [\n"
      "    {type: conv2d, name: a, out_channels: $wide, kernel_size: ($n - 3) / 3},\n"
      "    {type: conv2d, name: b, out_channels: 2*$w-$n/-2 + 1, kernel_size: 1},\n"
      "    {type: conv2d, name: c, out_channels: 64 / $w / 2 - 1 - 1, kernel_size: 1},\n"
      "    {type: conv2d, name: d, out_channels: -(1 - $w), kernel_size: 1},\n"
      "    {block: inner, name: i, n: $n * 2, p: $n / 24.0, repeat: $w / 4}]}\n"
      "layers:\n"
      "  - {block: b, name: b}\n");
  std::vector<std::int64_t> channels;
  for (int i = 0; i < 4; ++i) {
    channels.push_back(config.model.layers.at(i).options.integer("out_channels"));
  }
  EXPECT_EQ(channels, (std::vector<std::int64_t>{32, 20, 2, 7}));
  EXPECT_EQ(config.model.layers[0].options.integers("kernel_size"), std::vector<std::int64_t>{1});
  ASSERT_EQ(config.model.layers.size(), 10u);
  EXPECT_EQ(config.model.layers[8].name, "b.i.1.up");
  EXPECT_EQ(config.model.layers[8].options.integers("size"), (std::vector<std::int64_t>{12, 5}));
  EXPECT_EQ(config.model.layers[9].options.number("p"), 0.5);
}

// The resolved config of a run has the layers without blocks.
TEST(Blocks, AResolvedConfigIsTheSameNetwork) {
  for (const char* name : {"synthetic_inception_small", "synthetic_residual_blocks"}) {
    const ExperimentConfig config = config_of(name);
    const std::string yaml = to_yaml(config);
    EXPECT_EQ(yaml.find("block"), std::string(name).find("blocks") == std::string::npos
                                      ? std::string::npos
                                      : yaml.find("blocks\n"))
        << yaml;
    const ExperimentConfig again = parse_config_text(yaml, "again.yaml");
    EXPECT_EQ(to_yaml(again), yaml);
    const auto a = build_model(config, kSample, 10), b = build_model(again, kSample, 10);
    const Variable x(normal({2, 1, 28, 28}, DType::f32, 4));
    a->eval();
    b->eval();
    EXPECT_TRUE(same_bits(a->forward(x).value(), b->forward(x).value()));
  }
  const std::string origins = to_yaml(config_of("synthetic_residual_blocks"), true);
  EXPECT_NE(origins.find("synthetic_residual_blocks.yaml:12"), std::string::npos) << origins;
}

TEST(Branches, ShapesThatDoNotFitAreNamedWithTheirPlace) {
  const ExperimentConfig config = parsed(
      "layers:\n"
      "  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 1}\n"
      "  - {type: conv2d, name: c2, out_channels: 5, kernel_size: 1}\n"
      "  - {type: add, name: sum, from: [c1, c2]}\n");
  EXPECT_ERROR(ErrorKind::kConfig,
               "[config] exp.yaml:5:5: error: layer 'sum' (add, inputs 'c1' [1,4,28,28], 'c2' "
               "[1,5,28,28]): [add] expected shapes that are equal or 1 at each axis, counted from "
               "the last, got [1,4,28,28] and [1,5,28,28]",
               build_model(config, kSample, 10));
}

// Each default repeats the one before it, so the last one would be a list of 8^9 numbers.
TEST(Branches, ParametersThatGrowWithoutBoundAreRefused) {
  std::string parameters = "p0: [1, 1, 1, 1, 1, 1, 1, 1]", nested = "p0: [1]";
  for (int i = 1; i < 9; ++i) {
    std::string items;
    for (int k = 0; k < 8; ++k) items += cat(k > 0 ? ", " : "", "$p", i - 1);
    parameters += cat(", p", i, ": [", items, "]");
  }
  for (int i = 1; i < 600; ++i) nested += cat(", p", i, ": [$p", i - 1, "]");
  for (const std::string& text : {parameters, nested}) {
    EXPECT_ERROR(ErrorKind::kConfig,
                 "expected parameters that are replaced by at most 100000 values in all, got more",
                 parsed(cat("blocks: {b: {parameters: {", text,
                            "}, layers: [{type: relu}]}}\nlayers: [{block: b}]\n")));
  }
}

TEST(Branches, PoliciesNameLayersOfBlocks) {
  const ExperimentConfig config =
      config_of("synthetic_residual_blocks", {"conv.per_layer={stage1.0.conv1: im2col_gemm}"});
  const auto network = build_model(config, kSample, 10);
  const std::string csv = layer_table(*network, {64, 1, 28, 28}, config.device).csv;
  EXPECT_NE(csv.find("\nstage1.0.conv1,conv2d,64x8x14x14,576,3,im2col_gemm,"), std::string::npos)
      << csv;
  EXPECT_NE(csv.find("\nstage1.0.add_1,add,64x8x14x14,0,,"), std::string::npos) << csv;
}

// Integers must have the results of rounded numbers.
TEST(Branches, QuantisedNetworksRunOnIntegers) {
  for (const char* name : {"synthetic_inception_small", "synthetic_residual_blocks"}) {
    SCOPED_TRACE(name);
    const auto logits = [&](const std::string& execute) {
      const ExperimentConfig config =
          config_of(name, {"quant={w_bits: 8, a_bits: 8, execute: " + execute + "}"});
      const auto network = build_model(config, kSample, 10);
      EXPECT_FALSE(quantized_tensors(*network).empty());
      const Tensor x = normal({4, 1, 28, 28}, DType::f32, 4);
      for (int i = 0; i < 40; ++i) network->forward(Variable(x));  // calibrates
      network->eval();
      std::string why;
      const auto plan = StepPlan::make(*network, x.shape(), PlanMode::inference, &why);
      EXPECT_NE(plan, nullptr) << why;
      plan->prepare();
      return plan->infer(x).clone();
    };
    const Tensor fake = logits("fake");
    EXPECT_TRUE(near(logits("int8_always"), fake, 0.05, 0.02));
  }
}

TEST(Branches, RefuseBitsForSumsThatStayFloat) {
  const auto build = [](const char* bits) {
    return build_model(
        config_of("synthetic_residual_blocks", {cat("quant={residual_bits: ", bits, "}")}), kSample,
        10);
  };
  EXPECT_ERROR(ErrorKind::kConfig,
               "[quant.residual_bits] expected 8 (the default) or 0 because the sums of branches "
               "stay f32, got 4",
               build("4"));
  EXPECT_FALSE(quantized_tensors(*build("0")).empty());
}

// relu makes the operands of the concat unsigned, so the quantiser of its reader has no sign.
TEST(Branches, SignsPassThroughJoins) {
  const auto signs = [](const std::string& second) {
    const ExperimentConfig config =
        parsed(cat("quant: {w_bits: 8, a_bits: 8}\nlayers:\n"
                   "  - {type: relu, name: a}\n  - {type: ",
                   second,
                   ", name: b, from: input}\n"
                   "  - {type: concat, from: [a, b]}\n  - {type: flatten}\n"
                   "  - {type: linear, name: f, out_features: 10}\n"));
    const auto network = build_model(config, kSample, 10);
    for (const QuantizedTensor& tensor : quantized_tensors(*network)) {
      if (!tensor.is_weight) return tensor.quantizer->options().is_signed;
    }
    return false;
  };
  EXPECT_FALSE(signs("sigmoid"));
  EXPECT_TRUE(signs("tanh"));
}

TEST(Branches, WeightsArePrunedAndChannelsAreNot) {
  const auto pruner = [](const std::string& method) {
    const ExperimentConfig config =
        config_of("synthetic_inception_small", {"sparsity={method: " + method + ", target: 0.5}"});
    const auto network = build_model(config, kSample, 10);
    return build_pruner(config, *network, nullptr, kSample, 10);
  };
  EXPECT_NE(pruner("magnitude"), nullptr);
  EXPECT_ERROR(
      ErrorKind::kConfig,
      "got: branches (layers that read other layers than the one before); the methods magnitude",
      pruner("filter"));
}

TEST(Branches, AreExportedToOnnx) {
  const auto network = build_model(config_of("synthetic_inception_small"), kSample, 10);
  const OnnxGraph graph = onnx_network(*network, kSample, "net");
  std::vector<std::string> lines;
  for (const auto& node : graph.nodes) {
    if (node.op == "Concat" || node.name == "wide.conv") {
      lines.push_back(cat(node.op, " ", join(node.inputs)));
    }
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"Conv reduce.relu_1, wide.conv.weight",
                                             "Concat narrow.relu_1, wide.relu_1, project.relu_1"}));
  const auto sum = build_model(
      parsed("layers:\n  - {type: relu, name: a}\n  - {type: tanh, name: b, from: input}\n"
             "  - {type: mul, name: m, from: [a, b, input]}\n  - {type: flatten}\n"
             "  - {type: linear, name: f, out_features: 10}\n  - {type: dropout}\n"),
      kSample, 10);
  lines.clear();
  for (const auto& node : onnx_network(*sum, kSample, "net").nodes) {
    lines.push_back(cat(node.op, " ", join(node.inputs), " -> ", join(node.outputs)));
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"Relu images -> a", "Tanh images -> b", "Mul a, b -> m.1",
                                      "Mul m.1, images -> m", "Flatten m -> flatten_1",
                                      "Gemm flatten_1, f.weight, f.bias -> logits"}));
}

// A batch norm is folded if nothing else reads its convolution: that of a, but not that of b.
TEST(Branches, AreExportedToOnnxWithSplitsAndFoldedBatchNorms) {
  const auto network = build_model(
      parsed("layers:\n  - {type: conv2d, name: a, out_channels: 4, kernel_size: 1}\n"
             "  - {type: conv2d, name: b, from: input, out_channels: 4, kernel_size: 1}\n"
             "  - {type: batch_norm2d, name: norm_a, from: a}\n"
             "  - {type: batch_norm2d, name: norm_b, from: b}\n"
             "  - {type: add, name: sum, from: [norm_a, norm_b, b]}\n"
             "  - {type: split, name: s, sizes: [1, 3]}\n"
             "  - {type: mul, name: m, from: s}\n  - {type: flatten}\n"
             "  - {type: linear, name: f, out_features: 10}\n"),
      kSample, 10);
  const OnnxGraph graph = onnx_network(*network, kSample, "net", {.fold_batch_norm = true});
  EXPECT_EQ(graph.folded, 1);
  std::vector<std::string> lines;
  for (const auto& node : graph.nodes) {
    lines.push_back(cat(node.op, " ", join(node.inputs), " -> ", join(node.outputs)));
  }
  EXPECT_EQ(lines, (std::vector<std::string>{
                       "Conv images, a.weight, a.bias -> a", "Conv images, b.weight, b.bias -> b",
                       "BatchNormalization b, norm_b.weight, norm_b.bias, norm_b.running_mean, "
                       "norm_b.running_var -> norm_b",
                       "Add a, norm_b -> sum.1", "Add sum.1, b -> sum", "Constant  -> s.sizes",
                       "Split sum, s.sizes -> s.0, s.1", "Mul s.0, s.1 -> m",
                       "Flatten m -> flatten_1", "Gemm flatten_1, f.weight, f.bias -> logits"}));
}

// The quantisers of fc1 and fc2 are modules inside of the layer, but no layers.
TEST(Branches, QuantisedSqueezeAndExcitationIsExportedToOnnx) {
  const auto network = build_model(
      parsed("quant: {calibration_batches: 1}\n"
             "layers: [{type: conv2d, out_channels: 8, kernel_size: 3}, {type: relu}, "
             "{type: squeeze_excitation}, {type: flatten}, {type: linear, out_features: 10}]\n"),
      kSample, 10);
  network->forward(Variable(normal({4, 1, 28, 28}, DType::f32, 4)));
  int quantisers = 0;
  for (const auto& node : onnx_network(*network, kSample, "net").nodes) {
    quantisers += node.op == "QuantizeLinear" ? 1 : 0;
  }
  EXPECT_EQ(quantisers, 4);  // of the inputs of conv2d, fc1, fc2 and linear
}

TEST(Branches, TheProgramTrainsResumesEvaluatesAndPlots) {
  const TemporaryFolder folder;
  const std::string run = cat(
      "run ", kConfigs, "synthetic_residual_blocks.yaml data.train_size=200 data.test_size=100 ",
      "expect.test_acc_min=null log.every_steps=1 -q -o ", folder / "runs");
  Called answer = call_program(run + " --epochs-limit 1");
  ASSERT_EQ(answer.code, 0) << answer.err;
  answer = call_program(run + " --resume auto");
  ASSERT_EQ(answer.code, 0) << answer.err;
  const std::string trained = cat(folder / "runs", "/synthetic_residual_blocks/latest");
  for (const std::string& command :
       {"eval " + trained, "plot " + trained, "export --onnx net.onnx " + trained}) {
    answer = call_program(command, folder.path());
    EXPECT_EQ(answer.code, 0) << command << answer.err;
  }
}

}  // namespace
}  // namespace convscope::testing
