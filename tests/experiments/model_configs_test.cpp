// SPDX-License-Identifier: Apache-2.0
// model_configs_test.cpp: tests that every config of the repository builds its network, and that
// the small residual and depthwise networks train.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "datasets/synthetic_digits.h"
#include "experiments/config/build.h"
#include "experiments/config/conv_layers.h"
#include "experiments/run_folder/layer_table.h"
#include "experiments/trainer/train_step.h"
#include "framework/memory/unbacked.h"

namespace convscope {
namespace {

const std::filesystem::path kConfigs = CONVSCOPE_SOURCE_DIR "/experiments/configs";

Shape batch_shape(const ExperimentConfig& config, const Shape& sample) {
  Shape out = {config.data.batch_size};
  for (const std::int64_t size : sample) out.push_back(size);
  return out;
}

bool has_sweep(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("sweep:")) return true;
  }
  return false;
}

TEST(ModelConfigs, EveryConfigBuildsANetworkThatCanBeExplained) {
  int count = 0;
  for (const auto& file : std::filesystem::directory_iterator(kConfigs)) {
    const std::string name = file.path().filename();
    if (name.starts_with("base_")) continue;  // names no data set
    SCOPED_TRACE(name);
    std::vector<std::string> overrides;
    if (has_sweep(file.path())) overrides = {"sweep=null"};
    const ExperimentConfig config = load_config(file.path(), overrides);
    const SampleInfo sample = sample_info(config);
    const UnbackedMemory nothing;  // nothing is run
    const auto network = build_model(config, sample.shape, sample.classes);
    const Shape input = batch_shape(config, sample.shape);
    Shape output{config.data.batch_size, sample.classes};
    for (const std::int64_t size : sample.labels) output.push_back(size);
    EXPECT_EQ(network->output_shape(input), output);
    EXPECT_FALSE(conv_layers(*network, input).empty());
    ++count;
  }
  EXPECT_GE(count, 20);
}

TEST(ModelConfigs, TheLayerTableOfAResidualNetworkKnowsEveryShape) {
  const ExperimentConfig config = load_config(kConfigs / "cifar10_resnet18.yaml", {"data.root=."});
  const auto network = build_model(config, {3, 32, 32}, 10);
  const LayerTable table = layer_table(*network, {64, 3, 32, 32}, config.device);
  EXPECT_NE(table.csv.find("layer2.0.downsample.0,conv2d,64x128x16x16,8192,1,"), std::string::npos)
      << table.csv;
  EXPECT_NE(table.csv.find("fc,linear,64x10,5130,"), std::string::npos);
  EXPECT_EQ(table.kernel_sizes, "3/1");
}

// Repeated steps on one batch must reduce its loss, both compiled and as a dynamic graph. The
// losses agree only within a tolerance, because a compiled step may use another summation
// order (layers/plan/step_plan.h).
TEST(ModelConfigs, SmallNetworksLearnABatch) {
  const DatasetSplits digits = synthetic_digits({.train_size = 16, .test_size = 1});
  Loader loader(digits.train, {.batch_size = 16, .shuffle = false, .prefetch = false});
  loader.start_epoch(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  for (const char* name : {"synthetic_resnet18_small.yaml", "synthetic_mobilenet_small.yaml",
                           "synthetic_mobilenet_v2_small.yaml", "synthetic_inception_small.yaml",
                           "synthetic_residual_blocks.yaml"}) {
    SCOPED_TRACE(name);
    const ExperimentConfig config = load_config(kConfigs / name);
    double first_loss[2] = {}, last_loss[2] = {};
    for (const bool plans : {false, true}) {
      const auto network = build_model(config, {1, 28, 28}, 10);
      const auto optimizer = build_optimizer(config, *network);
      TrainStep step(*network, *optimizer, 0, config.device, 0, plans);
      for (int i = 0; i < 8; ++i) {
        last_loss[plans] = step.run(batch, config.optim.lr).loss;
        if (i == 0) first_loss[plans] = last_loss[plans];
      }
      EXPECT_EQ(step.plan() != nullptr, plans) << step.why_dynamic();
    }
    EXPECT_NEAR(first_loss[0], first_loss[1], 1e-4);
    for (const int plans : {0, 1}) EXPECT_LT(last_loss[plans], 0.7 * first_loss[plans]);
  }
}

}  // namespace
}  // namespace convscope
