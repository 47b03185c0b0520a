// SPDX-License-Identifier: Apache-2.0
// config_load_test.cpp: tests how a config is resolved: types, defaults, `extends`, overrides, and
// conversion back to YAML.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "experiments/config/experiment_config.h"
#include "experiments/config/sweep_block.h"
#include "tests/experiments/config_test_types.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

const std::string kSmall = "data: {set: mnist}\nmodel: {type: test_model, size: 3}\n";

ExperimentConfig load(const std::string& yaml, const std::vector<std::string>& overrides = {},
                      const std::map<std::string, std::string>& files = {}) {
  const ConfigReader reader = [&](const std::string& path) { return files.at(path); };
  return parse_config_text(yaml, "folder/small.yaml", reader, overrides);
}

TEST(Config, FillsInEveryDefault) {
  const ExperimentConfig config = load(kSmall);
  EXPECT_EQ(config.name, "small");  // from the file's name
  EXPECT_EQ(config.seed, 1);
  EXPECT_EQ(config.device, Device{});
  EXPECT_EQ(config.data.batch_size, 64);
  EXPECT_TRUE(config.data.shuffle);
  EXPECT_EQ(config.optim.type, "sgd");
  EXPECT_EQ(config.optim.schedule.type, "constant");
  EXPECT_EQ(config.conv.policy.forward, "auto");
  EXPECT_FALSE(config.expect.test_acc_min.has_value());
  EXPECT_EQ(config.model.options.integers("padding"), std::vector<std::int64_t>{0});
  EXPECT_EQ(config.model.options.number("rate"), 1.0);
  EXPECT_TRUE(config.model.options.flag("bias"));
  EXPECT_FALSE(config.model.options.has("label"));
}

TEST(Config, TypesScalarsByYaml12) {
  const ExperimentConfig config = load(
      "data: {set: mnist, root: no}\nseed: 0x1F\nthreads: 0o17\n"
      "model: {type: test_model, size: +5, rate: 1e-3, tags: [on, '1', y], padding: [1, 2]}\n");
  EXPECT_EQ(config.data.options.text("root"), "no");
  EXPECT_EQ(config.seed, 31);
  EXPECT_EQ(config.threads, 15);
  EXPECT_EQ(config.model.options.integer("size"), 5);
  EXPECT_EQ(config.model.options.number("rate"), 1e-3);
  EXPECT_EQ(config.model.options.texts("tags"), (std::vector<std::string>{"on", "1", "y"}));
  EXPECT_EQ(config.model.options.integers("padding"), (std::vector<std::int64_t>{1, 2}));
}

TEST(Config, NullMeansTheDefault) {
  const ExperimentConfig config =
      load(kSmall + "seed: null\ntrain: ~\noptim: {lr: , schedule: null}\n");
  EXPECT_EQ(config.seed, 1);
  EXPECT_EQ(config.train.epochs, 10);
  EXPECT_EQ(config.optim.lr, 0.05);
}

TEST(Config, MergesMapsAndReplacesListsOfExtendedFiles) {
  const std::map<std::string, std::string> files = {
      {"folder/a.yaml", "seed: 5\nname: a\noptim: {lr: 0.5, groups: [{match: '*.bias'}]}\n"},
      {"folder/sub/b.yaml", "extends: ../c.yaml\nname: b\ntrain: {epochs: 7}\n"},
      {"folder/c.yaml", "name: c\ntrain: {epochs: 2, eval_every: 3}\n"}};
  const ExperimentConfig config =
      load("extends: [a.yaml, sub/b.yaml]\noptim: {weight_decay: 0.25, groups: []}\n" + kSmall, {},
           files);
  EXPECT_EQ(config.name, "b");  // the last one that sets it
  EXPECT_EQ(config.seed, 5);
  EXPECT_EQ(config.optim.lr, 0.5);
  EXPECT_EQ(config.optim.weight_decay, 0.25);
  EXPECT_TRUE(config.optim.groups.empty());
  EXPECT_EQ(config.train.epochs, 7);
  EXPECT_EQ(config.train.eval_every, 3);
  EXPECT_EQ(config.origins.at("train.eval_every"), "folder/c.yaml:2");
  EXPECT_EQ(config.origins.at("optim.weight_decay"), "folder/small.yaml:2");
}

TEST(Config, OverridesReachEveryPlace) {
  const std::string yaml = "data: {set: mnist}\nlayers: [{type: test_layer, size: 1}]\n";
  const ExperimentConfig config =
      load(yaml, {"layers.0.size=8", "layers.0.name=c1", "train.epochs=3",
                  "expect={test_acc_min: 9}", "expect.test_acc_min=50", "conv.algorithm=reference",
                  "conv.per_layer.c1.forward=im2col_gemm", "conv.per_layer.block1.conv2=measure",
                  "optim.groups=[{match: 'c1.*'}]"});
  EXPECT_EQ(config.model.layers.at(0).options.integer("size"), 8);
  EXPECT_EQ(config.model.layers.at(0).name, "c1");
  EXPECT_EQ(config.train.epochs, 3);
  EXPECT_EQ(config.expect.test_acc_min, 50.0);
  EXPECT_EQ(config.conv.policy.backward_data, "reference");
  EXPECT_EQ(config.conv.of("c1").forward, "im2col_gemm");
  EXPECT_EQ(config.conv.of("c1").backward_weight, "reference");
  EXPECT_EQ(config.conv.of("block1.conv2").forward, "measure");
  EXPECT_EQ(config.conv.of("other").forward, "reference");
  EXPECT_EQ(config.optim.groups.at(0).match, "c1.*");
  EXPECT_EQ(config.origins.at("train.epochs"), "override");
}

TEST(Config, ALaterAlgorithmReplacesEarlierDirections) {
  const std::string yaml = kSmall + "conv: {algorithm: reference, forward: im2col_gemm}\n";
  EXPECT_EQ(load(yaml).conv.policy.forward, "im2col_gemm");
  EXPECT_EQ(load(yaml).conv.policy.backward_data, "reference");
  EXPECT_EQ(load(yaml, {"conv.algorithm=measure"}).conv.policy.forward, "measure");
}

TEST(Config, AReplacedTypeTakesItsOwnKeysAlong) {
  const std::string yaml = kSmall + "optim: {type: sgd, momentum: 0.9, lr: 0.5}\n";
  const ExperimentConfig config = load(yaml, {"optim.type=adam"});
  EXPECT_EQ(config.optim.type, "adam");
  EXPECT_FALSE(config.optim.options.has("momentum"));
  EXPECT_EQ(config.optim.lr, 0.5);
  EXPECT_THROW(load(kSmall + "optim: {type: adam, momentum: 0.9}\n"), Error);
  EXPECT_THROW(load(yaml, {"optim.type=adam", "optim.momentum=0.5"}), Error);
}

TEST(Config, LaterLayersReplaceAnExtendedModel) {
  const ExperimentConfig config = load("extends: a.yaml\nlayers: [{type: test_layer, size: 2}]\n",
                                       {}, {{"folder/a.yaml", kSmall}});
  EXPECT_EQ(config.model.type, "");
  EXPECT_EQ(config.model.layers.size(), 1U);
}

// YAML 1.1 (PyYAML) or YAML 1.2 would read these texts as a boolean, a number, a date or null, so
// the writer quotes them. tests/experiments/readme/screens.py checks this with PyYAML.
TEST(Config, WritesTextsThatEveryYamlReadsAsTexts) {
  const auto written = [](const std::string& text) {
    ExperimentConfig config = load(kSmall);
    config.data.options.set("root", text);
    const std::string yaml = to_yaml(config);
    EXPECT_EQ(load(yaml).data.options.text("root"), text) << yaml;
    const std::size_t at = yaml.find("root: ") + 6;
    return yaml.substr(at, yaml.find('\n', at) - at);
  };
  for (const char* text : {"y",          "Y",
                           "n",          "yes",
                           "No",         "on",
                           "OFF",        "true",
                           "null",       "~",
                           "010",        "0o7",
                           "1_000",      "0b1",
                           "0x1F",       "1:30",
                           "1e5",        "1e-5",
                           "+1",         "-.5",
                           ".5",         ".inf",
                           "-.INF",      ".NaN",
                           "2024-01-31", "2024-01-31 10:00:00",
                           "=",          "<<",
                           "-",          "- a",
                           "? a",        "a: b",
                           "a #b",       "[a]",
                           "{a}",        "%a",
                           "@a",         "`a",
                           "!a",         "&a",
                           "*a",         "|",
                           ">",          "'a'",
                           " a",         "a ",
                           "...",        "---",
                           "1.5.",       "12",
                           "1,5",        "a\u0085b",
                           "a\u2028b",   "\ufeffa"}) {
    EXPECT_EQ(written(text).front(), '"') << text;
    EXPECT_EQ(written(text).back(), '"') << text;
  }
  EXPECT_EQ(written("a\u0085b"), "\"a\\x85b\"");
  EXPECT_EQ(written("a\u2028b"), "\"a\\u2028b\"");
  for (const char* text : {"a", "lenet-k5", "3d_net", "block1.conv2", "./data", "../x", "größe",
                           "a=b c", "nothing", "one", "yess", "runs/a"}) {
    const bool plain = std::string_view(text).find('=') == std::string_view::npos;
    EXPECT_EQ(written(text), plain ? std::string(text) : cat('"', text, '"'));
  }
  EXPECT_NE(to_yaml(load(kSmall, {"optim.weight_decay=1e-5"})).find("weight_decay: 1.0e-05\n"),
            std::string::npos);
  EXPECT_NE(to_yaml(load(kSmall, {"note=issue #12 fixed"})).find("note: \"issue #12 fixed\"\n"),
            std::string::npos);
  const SweepPlan plan = parse_sweep_text(
      cat(kSmall, "sweep: {grid: {optim.lr: [1e-5, 0x10], model.label: [on, 'no']}}\n"), "s.yaml",
      {}, {});
  EXPECT_NE(plan.yaml.find("optim.lr: [1.0e-05, 16]"), std::string::npos) << plan.yaml;
  EXPECT_NE(plan.yaml.find("model.label: [\"on\", \"no\"]"), std::string::npos) << plan.yaml;
}

TEST(Config, WritesYamlThatLoadsToTheSameConfig) {
  const std::string yaml =
      "name: 'full-1.0'\nseed: 7\ndevice: cpu\nthreads: 3\n"
      "data: {set: mnist, root: \"a b: #'\\\"\\\\\\n\\tc\", batch_size: 5, val_split: 9, "
      "augment: {crop_padding: 4, mirror: true}}\n"
      "layers:\n"
      "  - {type: test_layer, size: 1, name: c1, padding: [1, 2, 3], tags: ['1', 'a, b', '[', -x, "
      "'']}\n"
      "  - {type: test_layer, size: 2, label: 'true', rate: 0.1, bias: false, mode: reflect}\n"
      "conv: {algorithm: im2col_gemm, per_layer: {c1: {forward: auto}, 'x.y: z': "
      "'check:im2col_gemm,reference'}}\n"
      "optim: {type: adamw, lr: 1.0e-3, lr_batch_size: 64, weight_decay: 3e-30, clip_grad_norm: 1, "
      "schedule: {type: cosine, warmup_epochs: 0.5}, "
      "groups: [{match: '*.bias', lr_scale: 2}, {match: 'c?.w*', weight_decay: 0}]}\n"
      "train: {epochs: 2}\ncheckpoint: {best: false}\nlog: {every_steps: 3}\n"
      "expect: {test_acc_min: 97.5}\n";
  const ExperimentConfig config = load(yaml);
  EXPECT_EQ(config.data.options.text("root"), "a b: #'\"\\\n\tc");
  const std::string written = to_yaml(config);
  const ExperimentConfig again = load(written);
  EXPECT_EQ(to_yaml(again), written);
  EXPECT_EQ(again.data.options.values(), config.data.options.values());
  EXPECT_EQ(again.model.layers.size(), 2U);
  EXPECT_EQ(again.model.layers[0].options.values(), config.model.layers[0].options.values());
  EXPECT_EQ(again.model.layers[1].options.values(), config.model.layers[1].options.values());
  EXPECT_EQ(again.optim.options.values(), config.optim.options.values());
  EXPECT_EQ(again.optim.schedule.options.values(), config.optim.schedule.options.values());
  EXPECT_EQ(again.optim.groups, config.optim.groups);
  EXPECT_EQ(again.optim.weight_decay, config.optim.weight_decay);
  EXPECT_EQ(again.optim.lr_batch_size, 64);
  EXPECT_EQ(again.conv.of("c1").forward, "auto");
  EXPECT_EQ(again.conv.of("x.y: z").forward, "check:im2col_gemm,reference");
  EXPECT_EQ(again.device, config.device);
  EXPECT_EQ(again.expect, config.expect);
  EXPECT_EQ(again.name, "full-1.0");
}

TEST(Config, WritesWhereEachValueCameFrom) {
  const std::string yaml = to_yaml(load(kSmall, {"train.epochs=3"}), true);
  EXPECT_NE(yaml.find("  epochs: 3                            # override\n"), std::string::npos)
      << yaml;
  EXPECT_NE(yaml.find("  set: mnist                           # folder/small.yaml:1\n"),
            std::string::npos)
      << yaml;
  EXPECT_NE(yaml.find("  batch_size: 64\n"), std::string::npos) << yaml;
  EXPECT_EQ(to_yaml(load(yaml)), to_yaml(load(kSmall, {"train.epochs=3"})));
}

TEST(Config, IsReadFromFilesRelativeToEachOther) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "sub");
  std::ofstream(folder / "base.yaml") << kSmall << "seed: 4\n";
  std::ofstream(folder / "sub/top.yaml") << "extends: ../base.yaml\n";
  EXPECT_EQ(load_config(folder / "sub/top.yaml").seed, 4);
  EXPECT_EQ(load_config(folder / "sub/top.yaml").name, "top");
  try {
    load_config(folder / "none.yaml");
    FAIL() << "a missing file was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_NE(std::string(error.what()).find("none.yaml"), std::string::npos);
  }
}

TEST(Config, OfEveryShippedExperimentLoadsAndRoundTrips) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(CONVSCOPE_SOURCE_DIR "/experiments/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    std::ifstream file(entry.path());
    std::string first;
    std::getline(file, first);
    EXPECT_TRUE(first.starts_with("# ")) << entry.path() << " opens with its question";
    if (entry.path().filename().string().find("base_") == 0) continue;  // only for `extends`
    std::ostringstream rest;
    rest << file.rdbuf();
    if (rest.str().find("\nsweep:\n") != std::string::npos) {
      EXPECT_GE(load_sweep(entry.path().string()).members.size(), 2u) << entry.path();
      continue;
    }
    const ExperimentConfig config = load_config(entry.path().string());
    const std::string yaml = to_yaml(config);
    EXPECT_EQ(to_yaml(parse_config_text(yaml, "again.yaml")), yaml);
    ++files;
  }
  EXPECT_GE(files, 4);
}

TEST(ConfigKeys, AreDocumentedAndDoNotCollide) {
  std::map<std::string, int> seen;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(++seen[key.path], 1) << key.path << " is listed twice";
    if (key.path.find("[test_") == std::string::npos) {
      EXPECT_FALSE(key.field.doc.empty()) << key.path;
    }
    // A key of one data set, model or layer must not have the name of a key that all data sets,
    // models or layers share, because it would hide the shared key.
    const std::size_t open = key.path.find('['), close = key.path.find("].");
    if (open == std::string::npos || close == open + 1 || close == std::string::npos) continue;
    const std::string block = key.path.substr(0, open);
    for (const char* common : {".", "[]."}) {
      EXPECT_FALSE(seen.contains(block + common + key.field.name)) << key.path;
    }
  }
  EXPECT_TRUE(seen.contains("optim[sgd].momentum"));
}

}  // namespace
}  // namespace convscope
