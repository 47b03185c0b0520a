// SPDX-License-Identifier: Apache-2.0
// shipped_configs_test.cpp: configs are found by name from any folder; their list.
#include "experiments/config/shipped/shipped_configs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "experiments/config/sweep_block.h"
#include "tests/support/call_program.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using testing::call_program;
using testing::Called;

const std::string kConfigs = CONVSCOPE_SOURCE_DIR "/experiments/configs";

TEST(ShippedConfigs, EveryCommandTakesTheirNamesWhereverOneStands) {
  const testing::TemporaryFolder folder;
  for (const std::string line :
       {"config show quickstart", "config check quickstart.yaml", "config check synthetic_sweep",
        "explain quickstart", "sweep synthetic_sweep --dry-run", "run -n mnist_lenet5_baseline",
        "bench net quickstart --batch 1 --mode inference --min-time 0.001 --rounds 1"}) {
    const Called result = call_program(line, folder.path());
    EXPECT_EQ(result.code, 0) << line << "\n" << result.err;
  }
  const Called run =
      call_program("run quickstart train.epochs=1 data.train_size=64 data.test_size=10 expect=null",
                   folder.path());
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(fs::exists(folder / "runs/quickstart/latest")) << run.err;
}

TEST(ShippedConfigs, AFileInTheCurrentFolderWins) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "quickstart.yaml")
      << "seed: 77\ndata: {set: synthetic_digits}\nmodel: {type: lenet5}\n";
  EXPECT_NE(call_program("config show quickstart", folder.path()).out.find("seed: 77"),
            std::string::npos);
  fs::rename(folder / "quickstart.yaml", folder / "quickstart");
  EXPECT_NE(call_program("config show quickstart", folder.path()).out.find("seed: 77"),
            std::string::npos);
  fs::remove(folder / "quickstart");
  fs::create_directory(folder / "quickstart");  // such as the folder of its runs
  EXPECT_NE(call_program("config show quickstart", folder.path()).out.find("seed: 1 "),
            std::string::npos);
}

TEST(ShippedConfigs, ANameThatIsNeitherSaysWhatThereIs) {
  const testing::TemporaryFolder folder;
  const Called result = call_program("run quikstart", folder.path());
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.err,
            "error: expected a config file or the name of a shipped config, got 'quikstart'; did "
            "you mean 'quickstart'? (`convscope config list` shows them)\n");
  EXPECT_EQ(call_program("config check mine.yaml", folder.path()).err,
            "error: expected the config file 'mine.yaml', got: No such file or directory\n");
  EXPECT_NE(call_program("bench net resnet81", folder.path()).err.find("mean 'resnet18'?"),
            std::string::npos);
}

TEST(ShippedConfigs, TheListHasEachWithASentence) {
  const testing::TemporaryFolder folder;
  const Called result = call_program("config list", folder.path());
  EXPECT_EQ(result.code, 0) << result.err;
  const auto lines = std::ranges::count(result.out, '\n');
  std::int64_t files = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kConfigs)) {
    ++files;
    EXPECT_NE(("\n" + result.out).find("\n" + entry.path().stem().string() + " "),
              std::string::npos)
        << entry.path();
  }
  EXPECT_EQ(lines, files);
  for (const ShippedConfig& config : shipped_configs()) {
    EXPECT_GE(config.about.size(), 20u) << config.path;
    const char last = config.about.empty() ? ' ' : config.about.back();
    EXPECT_TRUE(last == '?' || last == '.') << config.path << ": " << config.about;
  }
  EXPECT_EQ(call_program("config list fashion", folder.path()).out.find("quickstart"),
            std::string::npos);
  EXPECT_EQ(call_program("config list nonsense", folder.path()).code, 2);
}

// The program finds configs by the paths in the documents and by name, even if it is called from
// another folder.
TEST(ShippedConfigs, ShapesAreFoundByTheirNames) {
  const testing::TemporaryFolder folder;
  const std::string shipped = shipped_shapes() + "/lenet.txt";
  for (const char* const word : {"lenet", "lenet.txt", "experiments/shapes/lenet.txt"}) {
    EXPECT_TRUE(fs::equivalent(find_shapes(word), shipped)) << word;
  }
  EXPECT_EQ(find_shapes("nosuch"), "nosuch");
  EXPECT_EQ(find_shapes("other/lenet.txt"), "other/lenet.txt");
  EXPECT_EQ(find_shapes(""), "");
  const std::string timing = " --direction forward --algorithm direct --min-time 0.001 --rounds 1";
  const Called found = call_program("bench conv2d --shapes lenet" + timing, folder.path());
  EXPECT_EQ(found.code, 0) << found.err;
  const Called missing = call_program("bench conv2d --shapes lenett" + timing, folder.path());
  EXPECT_EQ(missing.code, 6) << missing.err;
  EXPECT_NE(missing.err.find("lenett"), std::string::npos) << missing.err;
}

// Default values may change, so a shipped config with published results states every setting.
TEST(ShippedConfigs, SayTheirWholeRecipe) {
  const auto check = [](const ExperimentConfig& config, const std::string& path) {
    EXPECT_TRUE(config.origins.contains("optim.lr")) << path;
    EXPECT_TRUE(config.origins.contains("optim.type")) << path;
    EXPECT_TRUE(config.optim.type != "sgd" || config.origins.contains("optim.momentum")) << path;
    EXPECT_TRUE(config.origins.contains("train.epochs")) << path;
  };
  int checked = 0;
  for (const ShippedConfig& shipped : shipped_configs()) {
    if (shipped.name.starts_with("base_")) continue;
    ++checked;
    if (!holds_sweep(shipped.path)) {
      check(load_config(shipped.path), shipped.path);
      continue;
    }
    for (const SweepMember& member : load_sweep(shipped.path).members) {
      check(member.config, shipped.path);
    }
  }
  EXPECT_GT(checked, 20);
}

}  // namespace
}  // namespace convscope
