// SPDX-License-Identifier: Apache-2.0
// plugin_config_test.cpp: tests configs that use a plug-in. The run names the plug-in, resumes with
// it, and reports a plug-in that is missing or has changed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/io/npy.h"
#include "tests/experiments/plugins/plugin_paths.h"
#include "tests/support/call_program.h"

namespace convscope::testing {
namespace {

namespace fs = std::filesystem;

// Makes a folder with a config, and a subfolder with a plug-in, as a student would.
class PluginConfig : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(folder_ / "plugins");
    fs::copy_file(kPlanted, plugin());
    std::ofstream(folder_ / "mine.yaml")
        << "extends: " CONVSCOPE_SOURCE_DIR "/experiments/configs/quickstart.yaml\n"
        << "name: mine\nplugins: [plugins]\nthreads: 1\n"
        << "data: {train_size: 128, test_size: 64}\ntrain: {epochs: 2}\n"
        << "conv: {algorithm: no_mistake}\nexpect: null\n";
  }
  std::string plugin() const { return folder_ / "plugins/planted_plugin.so"; }
  Called call(const std::string& words) const { return call_program(words, folder_.path()); }
  // Returns the only run.
  std::string run() const { return fs::directory_iterator(folder_ / "runs/mine")->path().string(); }
  nlohmann::json json(const std::string& file) const {
    return nlohmann::json::parse(text_of(run() + "/" + file));
  }

  const TemporaryFolder folder_;
};

TEST_F(PluginConfig, IsNamedByTheRunWhichGoesOnWithTheSameBits) {
  const Called whole = call("run mine.yaml -o whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Called first = call("run mine.yaml --epochs-limit 1");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(text_of(run() + "/config.yaml").find("plugins: [" + plugin() + "]"), std::string::npos);
  const std::string layers = text_of(run() + "/layers.csv");
  EXPECT_NE(layers.find(",no_mistake,no_mistake,no_mistake,"), std::string::npos) << layers;
  EXPECT_NE(layers.find(",plugins,"), std::string::npos) << layers;
  EXPECT_NE(layers.find(",planted_plugin.so,"), std::string::npos) << layers;
  const nlohmann::json named = json("env.json")["plugins"];
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0]["file"], plugin());
  EXPECT_EQ(named[0]["hash"].get<std::string>().size(), 16u);
  EXPECT_EQ(named[0]["algorithms"][0], "no_mistake");

  // The run stores the absolute path of the plug-in, so it can be resumed from another folder.
  const Called rest = call_program("run --resume '" + run() + "'", "/");
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_EQ(rest.err.find("other bits"), std::string::npos) << rest.err;
  const std::string other = fs::directory_iterator(folder_ / "whole/mine")->path().string();
  EXPECT_EQ(json("summary.json")["test_loss"],
            nlohmann::json::parse(text_of(other + "/summary.json"))["test_loss"]);
}

TEST_F(PluginConfig, SaysWhenItIsAnotherOneOrGone) {
  ASSERT_EQ(call("run mine.yaml --epochs-limit 1").code, 0);
  std::ofstream(plugin(), std::ios::app | std::ios::binary) << "another build";
  const Called changed = call("run --resume '" + run() + "'");
  EXPECT_EQ(changed.code, 0) << changed.err;
  EXPECT_NE(changed.err.find("the weights may end with other bits: plugins was '"),
            std::string::npos)
      << changed.err;

  fs::remove_all(folder_ / "runs");
  ASSERT_EQ(call("run mine.yaml --epochs-limit 1").code, 0);
  fs::remove(plugin());
  const Called gone = call("run --resume '" + run() + "'");
  EXPECT_EQ(gone.code, 3);
  EXPECT_NE(gone.err.find("config.yaml:"), std::string::npos) << gone.err;
  EXPECT_NE(gone.err.find("plugins: expected a plug-in in " + plugin() + ", but it does not exist"),
            std::string::npos)
      << gone.err;
  EXPECT_EQ(std::count(gone.err.begin(), gone.err.end(), '\n'), 1) << gone.err;
  const Called empty = call("explain mine.yaml");
  EXPECT_EQ(empty.code, 3);
  EXPECT_NE(empty.err.find("mine.yaml:3:11: error: plugins: expected a plug-in in "),
            std::string::npos)
      << empty.err;
  EXPECT_EQ(std::count(empty.err.begin(), empty.err.end(), '\n'), 1) << empty.err;
  EXPECT_EQ(call("report runs/mine").code, 0);  // the table needs no plug-in
}

TEST_F(PluginConfig, IsKnownToEveryCommand) {
  const Called explained = call("explain mine.yaml");
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_NE(explained.out.find("plug-in no_mistake of"), std::string::npos) << explained.out;
  const std::string with = " --plugin '" + plugin() + "'";
  // The config does not mention the plug-in; the option --plugin names it, at any position in the
  // command line.
  const Called twice = call_program(
      "--plugin '" + plugin() + "' explain quickstart conv.algorithm=no_mistake --layer c1" + with);
  EXPECT_EQ(twice.code, 0) << twice.err;
  EXPECT_NE(twice.out.find("* no_mistake"), std::string::npos) << twice.out;
  const Called unknown = call_program("explain quickstart conv.algorithm=no_mistake");
  EXPECT_EQ(unknown.code, 3) << unknown.err;

  write_npy(folder_ / "x.npy", Tensor::full(Shape{1, 2, 5, 5}, 1.0));
  write_npy(folder_ / "w.npy", Tensor::full(Shape{3, 2, 3, 3}, 1.0));
  const Called op =
      call("op conv2d --x x.npy --w w.npy --algorithm no_mistake --out-y y.npy" + with);
  EXPECT_EQ(op.code, 0) << op.err;
  EXPECT_NE(op.err.find("forward: no_mistake"), std::string::npos);
  EXPECT_EQ(read_npy(folder_ / "y.npy").at(0), 18.0);

  const Called bench = call(
      "bench conv2d --problem n=1,c=2,h=8,w=8,k=2,r=3,s=3 --algorithm no_mistake,wrong_flipped "
      "--direction forward --min-time 0.001 --rounds 1" +
      with);
  EXPECT_EQ(bench.code, 1) << bench.err;  // one of them is wrong
  EXPECT_NE(bench.out.find("no_mistake"), std::string::npos) << bench.out;
}

}  // namespace
}  // namespace convscope::testing
