// SPDX-License-Identifier: Apache-2.0
// bench_net_test.cpp: `convscope bench net`: what it counts, writes and refuses.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/bench/net/net_report.h"
#include "experiments/bench/process_memory.h"
#include "experiments/cli/cli.h"
#include "experiments/config/build.h"
#include "experiments/trainer/compression/kept_weights.h"
#include "framework/memory/memory.h"
#include "layers/flatten.h"
#include "layers/linear/linear.h"
#include "layers/plan/step_plan.h"
#include "layers/sequential.h"
#include "tests/experiments/rest_layer.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using Json = nlohmann::json;

const std::string kSmallNet =
    "name: small\n"
    "data: {set: cifar10, root: /nowhere, batch_size: 3}\n"
    "layers:\n"
    "  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 3, padding: 1}\n"
    "  - {type: residual, name: block, out_channels: 6, stride: 2}\n"
    "  - {type: adaptive_avg_pool2d, output_size: 1}\n"
    "  - {type: flatten}\n"
    "  - {type: linear, name: f1, out_features: 10}\n"
    "optim: {type: sgd, lr: 0.1, momentum: 0.9}\n";
const Shape kImage = {3, 8, 8};
const NetBenchOptions kShort{.min_seconds = 1e-6, .least_samples = 4, .warm_up = 2};

struct Net {
  ExperimentConfig config = parse_config_text(kSmallNet, "small.yaml");
  std::shared_ptr<Module> model = build_model(config, kImage, 10);
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Runs `convscope bench net` with these arguments and returns its exit code. Stores stdout in `out`
// and stderr in `errors`.
int run(std::vector<std::string> words, std::string* out = nullptr, std::string* errors = nullptr) {
  words.insert(words.begin(), {"convscope", "bench", "net"});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data());
  const std::string said = ::testing::internal::GetCapturedStdout();
  const std::string complained = ::testing::internal::GetCapturedStderr();
  if (out != nullptr) *out = said;
  if (errors != nullptr) *errors = complained;
  return code;
}

TEST(BenchNet, TakesTheDeviceAsAnOptionOrAsAKey) {
  const std::vector<std::string> words = {"lenet5",     "--mode", "inference", "--batch", "1",
                                          "--min-time", "1e-6",   "--rounds",  "1"};
  const auto with = [&](std::vector<std::string> more, std::string* out, std::string* errors) {
    more.insert(more.begin(), words.begin(), words.end());
    return run(more, out, errors);
  };
  std::string out, errors;
  EXPECT_EQ(with({"--device", "cpu"}, &out, &errors), 0) << errors;
  EXPECT_NE(out.find("10 classes, cpu, "), std::string::npos) << out;
  EXPECT_EQ(with({"--device", "cpu", "device=cpu"}, nullptr, &errors), 0) << errors;
  EXPECT_EQ(with({"--device", "cuda", "device=cpu"}, nullptr, &errors), 2);
  EXPECT_NE(errors.find("expected one device because a case runs on one, got --device cuda and "
                        "device=cpu"),
            std::string::npos)
      << errors;
  EXPECT_NE(with({"--device", "abacus"}, nullptr, &errors), 0);
  EXPECT_NE(errors.find("abacus"), std::string::npos) << errors;
}

TEST(BenchNet, CountsTheWorkOfConvolutionsAndLinearLayers) {
  Net net;
  const NetFlops flops = net_flops(*net.model, {2, 3, 8, 8});
  // Expected FLOPs for 2 images (a multiply-add counts as 2): c1 has 8x8 outputs, the three
  // convolutions of the block have 4x4 outputs, and the linear layer follows.
  const double c1 = 2.0 * 2 * 64 * 4 * 27;
  const double rest = 2.0 * 2 * 16 * 6 * (4 * 9 + 6 * 9 + 4) + 2.0 * 2 * 6 * 10;
  EXPECT_EQ(flops.forward, c1 + rest);
  EXPECT_EQ(flops.step, 2 * c1 + 3 * rest);  // the gradient of the images is not needed
}

TEST(BenchNet, TimesInferenceAndAWholeTrainingStep) {
  for (const NetMode mode : {NetMode::inference, NetMode::train}) {
    Net net;
    const NetBenchRow row = bench_net(net.config, *net.model, kImage, 10, mode, 5, kShort);
    EXPECT_EQ(row.batch, 5);
    EXPECT_GE(row.time.samples, 4);
    EXPECT_GT(row.time.median_ms, 0);
    EXPECT_LE(row.time.p10_ms, row.time.p90_ms);
    EXPECT_NEAR(row.images_per_second, 5e3 / row.time.median_ms, 1e-6 * row.images_per_second);
    EXPECT_EQ(row.parameters, net.model->parameter_count());
    EXPECT_GE(row.peak_bytes, row.resident_bytes);
    EXPECT_EQ(row.execution, "planned");
    EXPECT_GE(row.peak_bytes, 4 * row.parameters + 4 * 5 * 3 * 64);  // weights and images at least
    EXPECT_GT(row.process_peak_bytes, row.peak_bytes);
    EXPECT_EQ(row.system_allocations, 0);
    EXPECT_EQ(row.parts.backward_ms > 0, mode == NetMode::train);
    EXPECT_EQ(net.model->is_training(), mode == NetMode::train);
  }
}

// Returns a network with a pruned layer between two linear layers. Each direction of a linear layer
// takes 2 N C K FLOPs; the first layer computes no dx.
std::shared_ptr<Sequential> resting_network() {
  const auto model = std::make_shared<Sequential>();
  LayerContext context;
  model->add("flat", std::make_shared<Flatten>());
  const auto linear = [&](std::int64_t in, std::int64_t out) {
    return std::make_shared<Linear>(LinearOptions{.in_features = in, .out_features = out}, context);
  };
  model->add("f1", linear(192, 16));
  model->add("rest", std::make_shared<testing::RestLayer>(2, 6, 0));
  model->add("f2", linear(16, 10));
  return model;
}
constexpr double kForwardFlops = 2.0 * 5 * (192 * 16 + 16 * 10);
constexpr double kStepFlops = kForwardFlops + 2.0 * 5 * (192 * 16 + 2 * 16 * 10);

TEST(BenchNet, ThePartsAndTheRateAreThoseOfTheTimeThatWasTaken) {
  const Net net;
  const auto model = resting_network();
  for (const NetMode mode : {NetMode::inference, NetMode::train}) {
    const bool train = mode == NetMode::train;
    const NetBenchRow row = bench_net(net.config, *model, kImage, 10, mode, 5, kShort);
    EXPECT_GE(row.time.min_ms, train ? 8 : 2);
    EXPECT_EQ(row.flops, train ? kStepFlops : kForwardFlops);
    EXPECT_NEAR(row.gflops_effective, 1e-6 * row.flops / row.time.median_ms,
                1e-9 * row.gflops_effective);
    if (!train) continue;
    EXPECT_GE(row.parts.forward_ms, 2);
    EXPECT_GE(row.parts.backward_ms, 6);
  }
  const auto layers = bench_layers(
      *model, {5, 3, 8, 8}, NetMode::train, net.config.device, kShort,
      kernels_of_step(*model, {5, 3, 8, 8}, net.config.device, PlanMode::training, true));
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[2].layer, "rest");
  EXPECT_GE(layers[2].forward_ms, 2);
  EXPECT_GE(layers[2].backward_ms, 6);
}

TEST(BenchNet, TrainingMovesTheWeightsAndInferenceDoesNot) {
  for (const NetMode mode : {NetMode::inference, NetMode::train}) {
    Net net;
    const Tensor weight = net.model->parameters().front().variable.value();
    const Tensor before = weight.clone();
    (void)bench_net(net.config, *net.model, kImage, 10, mode, 5, kShort);
    double moved = 0;
    for (std::int64_t i = 0; i < weight.numel(); ++i) {
      moved = std::max(moved, std::abs(weight.at(i) - before.at(i)));
    }
    EXPECT_EQ(moved > 0, mode == NetMode::train);
    EXPECT_LT(moved, 0.01);
  }
}

TEST(BenchNet, TimesEveryLayerAlone) {
  Net net;
  const auto rows = bench_layers(
      *net.model, {2, 3, 8, 8}, NetMode::train, net.config.device, kShort,
      kernels_of_step(*net.model, {2, 3, 8, 8}, net.config.device, PlanMode::training, true));
  ASSERT_EQ(rows.size(), 11U);  // c1, seven layers of the block, pool, flatten, f1
  EXPECT_EQ(rows[0].layer, "c1");
  EXPECT_NE(rows[0].algorithms.find('/'), std::string::npos);  // one for each direction
  EXPECT_EQ(rows[6].layer, "block.downsample.0");
  EXPECT_EQ(rows[6].input, (Shape{2, 4, 8, 8}));
  EXPECT_EQ(rows.back().kind, "linear");
  for (const NetLayerRow& row : rows) EXPECT_GT(row.forward_ms, 0) << row.layer;
  for (const std::size_t i : {0, 1, 2, 10}) EXPECT_GT(rows[i].backward_ms, 0) << rows[i].layer;
}

TEST(BenchNet, TimesTheOperationsOfThePlan) {
  Net net;
  const auto rows = bench_operations(*net.model, {2, 3, 8, 8}, 10, NetMode::train, kShort);
  ASSERT_GE(rows.size(), 5U);
  double backward = 0;
  for (const NetOpRow& row : rows) backward += row.backward_ms;
  EXPECT_GT(backward, 0);
}

// The benchmark never times a step in which quantisers calibrate. The cases differ in when
// calibration begins and in how many steps it takes.
TEST(BenchNet, CalibratesQuantisersBeforeItTimesAnything) {
  for (const NetMode mode : {NetMode::inference, NetMode::train}) {
    for (const char* begin : {"0", "0.5"}) {
      SCOPED_TRACE(cat(name_of(mode), " begin ", begin));
      Net net;
      net.config = parse_config_text(
          cat(kSmallNet, "quant: {w_bits: 4, a_bits: 4, calibration_batches: 9, begin: ", begin,
              "}\nsparsity: {method: magnitude, target: 0.5}\n"),
          "small.yaml");
      net.model = build_model(net.config, kImage, 10);
      const auto pruner = build_pruner(net.config, *net.model, nullptr, kImage, 0);
      pruner->prune_now();
      NetBenchOptions options = kShort;
      options.pruner = pruner.get();
      const NetBenchRow row = bench_net(net.config, *net.model, kImage, 10, mode, 5, options);
      EXPECT_EQ(row.execution, "planned");
      for (const QuantizedTensor& tensor : quantized_tensors(*net.model)) {
        EXPECT_TRUE(tensor.quantizer->is_calibrated());
      }
      const auto plan = StepPlan::make(
          *net.model, {5, 3, 8, 8},
          mode == NetMode::train ? PlanMode::training : PlanMode::inference, nullptr);
      ASSERT_NE(plan, nullptr);
      EXPECT_NE(plan->text().find("fake quantiser"), std::string::npos);
      count_kept(*net.model);  // they know the masks already
      EXPECT_TRUE(plan->is_current());
    }
  }
}

TEST(BenchNet, SaysWhyANetworkIsNotPlanned) {
  Net net;
  net.config.train.plan = false;
  for (const NetMode mode : {NetMode::inference, NetMode::train}) {
    const NetBenchRow row = bench_net(net.config, *net.model, kImage, 10, mode, 5, kShort);
    EXPECT_EQ(row.execution, "dynamic: the config says so");
  }
}

TEST(BenchNet, WritesTheSameRowsAsTableJsonAndCsv) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "small.yaml") << kSmallNet;
  std::string table;
  ASSERT_EQ(
      run({folder / "small.yaml", "--batch", "1,4", "--image", "3x12x10", "--min-time", "0.001",
           "--rounds", "2", "--layers", "--json", folder / "net.json", "--csv", folder / "net.csv"},
          &table),
      0);
  EXPECT_NE(table.find("| block.downsample.0 "), std::string::npos);
  EXPECT_NE(table.find("| inference | 1 "), std::string::npos);
  EXPECT_NE(table.find("| train     | 4 "), std::string::npos);
  const Json json = Json::parse(text_of(folder / "net.json"));
  EXPECT_EQ(json.at("format"), "convscope bench net 1");
  EXPECT_TRUE(json.at("machine").contains("cpu"));
  ASSERT_EQ(json.at("rows").size(), 4U);
  const Json& row = json.at("rows")[3];
  EXPECT_EQ(row.at("mode"), "train");
  EXPECT_EQ(row.at("batch"), 4);
  EXPECT_EQ(row.at("image"), "3x12x10");
  EXPECT_EQ(row.at("layers").size(), 11U);
  EXPECT_GE(row.at("operations").size(), 5U);
  EXPECT_TRUE(json.at("rows")[0].at("backward_ms").is_null());
  std::istringstream csv(text_of(folder / "net.csv"));
  std::string line;
  std::getline(csv, line);
  EXPECT_EQ(line.substr(0, 21), "net,mode,execution,ba");
  int lines = 0;
  while (std::getline(csv, line)) ++lines;
  EXPECT_EQ(lines, 4);
}

TEST(BenchNet, TakesTheNameOfAModel) {
  std::string table;
  // 60 + 880 + 48120 + 10164 + 850 parameters
  ASSERT_EQ(run({"lenet5", "--batch", "2", "--mode", "inference", "--min-time", "0.001", "--clock",
                 "cpu", "threads=1", "model.kernel_size=3"},
                &table),
            0);
  EXPECT_NE(table.find("lenet5: 60074 parameters, images [1,28,28], 10 classes, cpu, 1 threads"),
            std::string::npos)
      << table;
}

TEST(BenchNet, AnswersMistakesWithOneSentenceAndTheirExitCodes) {
  const testing::TemporaryFolder folder;
  const struct {
    std::vector<std::string> words;
    int code;
    const char* sentence;
  } cases[] = {
      {{"resnet81"}, 2, "got 'resnet81'; did you mean 'resnet18'?"},
      {{"lenet5", "--batch", "0"}, 2, "expected --batch to be whole numbers from 1"},
      {{"lenet5", "--batch", "4,"}, 2, "such as 1,8, got '4,'"},
      {{"lenet5", "--mode", "training"}, 2, "expected --mode inference, train or both"},
      {{"lenet5", "--image", "28x28"}, 2, "expected --image CxHxW"},
      {{"lenet5", "--image", "1x28xa"}, 2, "got '1x28xa'"},
      {{"lenet5", "--min-time", "0"}, 2, "expected --min-time above 0"},
      {{"lenet5", "--clock", "sun"}, 2, "expected --clock wall or cpu, got 'sun'"},
      {{"lenet5", "--clock", "cpu", "threads=2"}, 2, "expected --threads 1 and device cpu"},
      {{"lenet5", "--rounds", "0"}, 2, "expected --rounds from 1"},
      {{"lenet5", "--classes", "-3"}, 2, "expected --classes from 1"},
      {{"lenet5", "--image", "1x8x8"}, 3, "expected images of at least 16x16 pixels"},
      {{"lenet5", "model.kernel=3"}, 3, "unknown key 'model.kernel'"},
      {{folder / "absent.yaml"}, 3, "absent.yaml"},
      {{"lenet5", "--json", folder / "absent/net.json"}, 6, "absent/net.json"},
  };
  for (const auto& one : cases) {
    std::string errors;
    EXPECT_EQ(run(one.words, nullptr, &errors), one.code) << one.words.back() << ": " << errors;
    EXPECT_NE(errors.find(one.sentence), std::string::npos) << errors;
  }
}

TEST(ProcessMemory, PeaksAfterAResetAreThoseSince) {
  const std::int64_t before = process_peak_bytes();
  EXPECT_GT(before, 1 << 20);
  {
    std::vector<char> large(std::size_t{64} << 20, 1);
    EXPECT_NE(large[12345], 0);
  }
  EXPECT_GE(process_peak_bytes(), before);
  EXPECT_GE(process_peak_bytes(), std::int64_t{64} << 20);
}

}  // namespace
}  // namespace convscope
