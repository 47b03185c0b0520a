// SPDX-License-Identifier: Apache-2.0
// starter_config_test.cpp: configs of `convscope init` load, contain every key and learn.
#include "experiments/config/starter/starter_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "datasets/dataset.h"
#include "experiments/config/experiment_config.h"
#include "experiments/run_folder/run_summary.h"
#include "layers/layer_types.h"
#include "optim/optimizer.h"
#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;

std::vector<StarterRequest> all_pairs() {
  std::vector<StarterRequest> out;
  for (const std::string& data : dataset_types().names()) {
    for (const std::string& model : model_types().names()) {
      if (data.starts_with("test_") || model.starts_with("test_")) continue;  // from other tests
      if (dataset_types().get(data).point_grid) continue;  // no model accepts points
      // unet is the only model with a class for each pixel.
      if ((model == "unet") != (dataset_types().get(data).label_shape != nullptr)) continue;
      out.push_back({.data = data, .model = model, .file = data + "_" + model + ".yaml"});
    }
  }
  return out;
}

// Removes the '#' before every key that is a comment.
std::string uncommented(const std::string& text) {
  return std::regex_replace(text, std::regex("(^|\n)( *)# ( *[a-z_0-9]+:)"), "$1$2$3");
}

TEST(StarterConfig, EachPairPassesTheCheck) {
  const testing::TemporaryFolder folder;
  ASSERT_GE(all_pairs().size(), 12u);
  for (const StarterRequest& pair : all_pairs()) {
    const Called made =
        call_program("init --data " + pair.data + " --model " + pair.model, folder.path());
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(made.out, "wrote " + pair.file + "\n");
    const Called checked = call_program("config check " + pair.file, folder.path());
    EXPECT_EQ(checked.code, 0) << checked.err;
  }
}

TEST(StarterConfig, HoldsEveryKeyWithItsDefault) {
  for (const StarterRequest& pair : all_pairs()) {
    const std::string text = starter_config(pair), all = uncommented(text);
    const ExperimentConfig chosen = parse_config_text(text, pair.file);
    const ExperimentConfig config = parse_config_text(all, pair.file);
    EXPECT_GT(config.origins.size(), chosen.origins.size() + 20);
    int keys = 0;
    for (const ConfigKey& key : config_keys()) {
      const bool depends_on_type = key.path.find('[') != std::string::npos ||
                                   key.path.find('<') != std::string::npos ||
                                   key.path.starts_with("sweep.") || key.path == "extends";
      if (depends_on_type) continue;
      ++keys;
      const std::string name = key.path.substr(key.path.rfind('.') + 1);
      EXPECT_NE(all.find(name + ":"), std::string::npos) << key.path;
      EXPECT_NE(text.find("# " + key.field.doc), std::string::npos) << key.path;
    }
    EXPECT_GT(keys, 50);
    // Removing the # changes only blocks that are absent by default.
    ExperimentConfig without = config;
    without.quant.reset();
    without.sparsity = chosen.sparsity;
    EXPECT_EQ(to_yaml(without), to_yaml(chosen)) << pair.file;
  }
}

TEST(StarterConfig, PointsHaveAConfigOfTheirOwn) {
  const testing::TemporaryFolder folder;
  const Called answer = call_program("init --data mnist_points --model lenet5", folder.path());
  EXPECT_EQ(answer.code, 2);
  EXPECT_NE(answer.err.find("got 'mnist_points', whose samples are points"), std::string::npos)
      << answer.err;
}

TEST(StarterConfig, OverwritesNothingUnlessTold) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "mine.yaml") << "precious\n";
  const Called refused = call_program("init mine.yaml", folder.path());
  EXPECT_EQ(refused.code, 6);
  EXPECT_EQ(
      refused.err,
      "error: [init] expected a new file, because nothing is overwritten without --force, got "
      "mine.yaml\n");
  EXPECT_EQ(testing::text_of(folder / "mine.yaml"), "precious\n");
  EXPECT_EQ(call_program("init mine.yaml --force", folder.path()).code, 0);
  EXPECT_NE(testing::text_of(folder / "mine.yaml").find("\nname: mine "), std::string::npos)
      << testing::text_of(folder / "mine.yaml");
  const Called shown = call_program("init - --model lenet5", folder.path());
  EXPECT_NE(shown.out.find("model:\n  type: lenet5"), std::string::npos) << shown.out;
  const Called unknown = call_program("init --model lenet", folder.path());
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("did you mean 'lenet5'?"), std::string::npos) << unknown.err;
}

RunSummary summary_of(const std::string& folder, const std::string& name) {
  return parse_summary(testing::text_of(folder + "/runs/" + name + "/latest/summary.json"));
}

TEST(StarterConfig, Learns) {
  const testing::TemporaryFolder folder;
  // Runs the config, but replaces a large network by a smaller one with less data.
  const std::pair<std::string, std::string> kCases[] = {
      {"lenet5", ""},
      {"resnet18", "model.widths=[4,8,16,32] data.train_size=1500 data.image_size=16"},
      {"mobilenet_v1", "model.width_multiplier=0.125 data.train_size=1500 data.image_size=16"},
      {"mobilenet_v2",
       "model.width_multiplier=0.125 data.train_size=1500 data.image_size=16 data.batch_size=16 "
       "optim.lr=0.005 train.epochs=9"}};  // 17 narrow layers diverge with the rate of wide ones
  for (const auto& [model, smaller] : kCases) {
    ASSERT_EQ(call_program("init " + model + ".yaml --model " + model, folder.path()).code, 0);
    const Called run = call_program(
        "run " + model + ".yaml data.val_split=100 data.test_size=200 " + smaller, folder.path());
    ASSERT_EQ(run.code, 0) << run.err;
    const RunSummary summary = summary_of(folder.path(), model);
    EXPECT_LT(summary.train_loss, 2.2) << model << "\n" << run.err;  // of guessing: ln 10 = 2.30
    EXPECT_GT(summary.acc.value_or(0), model == "lenet5" ? 95 : 0) << run.err;
  }
}

// A config that names only the data set and the network learns with the default settings.
TEST(StarterConfig, TheDefaultsLearnInOneEpoch) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "m.yaml") << "data: {set: synthetic_digits}\nmodel: {type: lenet5}\n";
  for (const std::string& optim : optimizer_types().names()) {
    const Called run = call_program(
        "run m.yaml train.epochs=1 data.test_size=500 optim.type=" + optim + " --name " + optim,
        folder.path());
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_GT(summary_of(folder.path(), optim).acc.value_or(0), 60) << optim << "\n" << run.err;
  }
}

}  // namespace
}  // namespace convscope
