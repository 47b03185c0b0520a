// SPDX-License-Identifier: Apache-2.0
// memory_need_test.cpp: tests that the program predicts the memory of a config before the run, and
// that the prediction is right.
#include "experiments/trainer/memory/memory_need.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "experiments/trainer/ranks/shared_training.h"
#include "experiments/trainer/trainer.h"
#include "framework/io/atomic_file.h"
#include "framework/memory/memory.h"
#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::TemporaryFolder;

ExperimentConfig config_of(const std::vector<std::string>& overrides) {
  const TemporaryFolder root;
  write_file(root / "c.yaml",
             "name: small\n"
             "data: {set: synthetic_digits, train_size: 600, test_size: 200, batch_size: 128}\n"
             "model: {type: lenet5}\noptim: {type: sgd, lr: 0.01, momentum: 0.9}\n"
             "train: {epochs: 1}\nthreads: 1\n");
  return load_config(root / "c.yaml", overrides);
}

DataFacts facts_of(const ExperimentConfig& config) {
  const DatasetType& type = dataset_types().get(config.data.set);
  const auto [train, test] = type.sizes(config.data.options);
  return {train, test, type.sample_shape(config.data.options), type.classes,
          type.label_shape ? type.label_shape(config.data.options) : Shape{}};
}

std::int64_t need_of(const ExperimentConfig& config) {
  return memory_need(config, facts_of(config), share_of(config, nullptr)).host_bytes();
}

// Returns the allocator's peak in a whole run.
std::int64_t peak_of_a_run(const ExperimentConfig& config) {
  const TemporaryFolder root;
  release_cached({});
  reset_peak({});
  const std::int64_t before = memory_stats({}).live_bytes;
  TrainingSetup setup = setup_training(config);
  RunFolder folder = RunFolder::create(root.path(), "run", 1);
  Progress progress(Progress::Mode::quiet);
  // Each training step resets the peak, so the last peak is that of the evaluation. This peak
  // includes all memory that is in use during the evaluation.
  EXPECT_EQ(Trainer(setup, folder, progress).run(), 0);
  return memory_stats({}).peak_bytes - before;
}

TEST(MemoryNeed, IsThatOfTheRun) {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"data.batch_size=256", "data.val_split=100"},
      {"optim={type: adam, lr: 0.001}", "data.batch_size=32"},
      {"sparsity={method: magnitude, target: 0.5}"},
      {"quant={w_bits: 4, a_bits: 4, calibration_batches: 1}", "data.batch_size=64"},
      {"model=null",
       "layers=[{type: flatten}, {type: linear, out_features: 3000}, {type: relu}, "
       "{type: linear, out_features: 10}]"},
      // The weights are so large that the sums of gradients count.
      {"model=null", "train.accumulate=4",
       "layers=[{type: flatten}, {type: linear, out_features: 3000}, {type: relu}, "
       "{type: linear, out_features: 10}]"},
      {"model=null", "train={deterministic_ranks: true, rank_parts: 4, epochs: 1}",
       "layers=[{type: flatten}, {type: linear, out_features: 3000}, {type: relu}, "
       "{type: linear, out_features: 10}]"},
      {"model={type: lenet5, kernel_size: 7}", "train.accumulate=8", "data.batch_size=512"},
      {"model={type: lenet5, kernel_size: 7}", "train.accumulate=16", "data.batch_size=2048",
       "data.train_size=2048", "data.test_size=64"},
      // Labels of pixels: more bytes than the images.
      {"data={set: synthetic_segmentation, train_size: 2000, test_size: 200}",
       "model={type: unet, poolings: 1, width: 1}"},
  };
  for (const auto& overrides : cases) {
    const ExperimentConfig config = config_of(overrides);
    const auto need = static_cast<double>(need_of(config));
    const auto peak = static_cast<double>(peak_of_a_run(config));
    EXPECT_GT(need / peak, 0.85) << join(overrides) << ": " << need << " of " << peak;
    EXPECT_LT(need / peak, 1.15) << join(overrides) << ": " << need << " of " << peak;
  }
}

TEST(MemoryNeed, IsRefusedWhereAControlGroupAllowsLess) {
  const TemporaryFolder root;
  const ControlGroups groups{root / "own", root / "cgroup"};
  std::filesystem::create_directories(root / "cgroup/job");
  write_file(root / "own", "0::/job\n");
  const ExperimentConfig config = config_of({});
  const DataFacts facts = facts_of(config);
  const std::int64_t need = need_of(config);
  write_file(root / "cgroup/job/memory.max", std::to_string(need));
  EXPECT_NE(check_memory(config, facts, {}, groups).find("memory: about"), std::string::npos);
  write_file(root / "cgroup/job/memory.max", std::to_string(need - 1));
  EXPECT_ERROR(ErrorKind::kConfig,
               "that " + (root / "cgroup/job/memory.max") + " allows, got one that needs about",
               check_memory(config, facts, {}, groups));
  EXPECT_ERROR(ErrorKind::kConfig, "; lower data.batch_size (128) or ",
               check_memory(config, facts, {}, groups));
}

TEST(MemoryNeed, NamesTheKeyBehindTheLargestPart) {
  const TemporaryFolder root;
  const ControlGroups groups{root / "own", root / "cgroup"};
  write_file(root / "own", "0::/\n");
  std::filesystem::create_directories(root / "cgroup");
  write_file(root / "cgroup/memory.max", "1000000");
  const auto refused = [&](const std::vector<std::string>& overrides, const char* part) {
    const ExperimentConfig config = config_of(overrides);
    EXPECT_ERROR(ErrorKind::kConfig, part, check_memory(config, facts_of(config), {}, groups));
  };
  refused({"data.batch_size=1", "data.train_size=100000"}, "; lower data.train_size or ");
  refused({"data.batch_size=1", "model=null",
           "layers=[{type: flatten}, {type: linear, out_features: 3000}, "
           "{type: linear, out_features: 10}]"},
          "; take a smaller model or ");
}

// No machine has memory for 8 TiB of weights. The run must be refused before it allocates memory or
// makes a folder.
TEST(MemoryNeed, ARunThatCannotFitLeavesNoFolder) {
  const TemporaryFolder root;
  write_file(root / "huge.yaml",
             "name: huge\ndata: {set: synthetic_digits, train_size: 64, test_size: 32}\n"
             "layers: [{type: flatten}, {type: linear, out_features: 1000000}, "
             "{type: linear, out_features: 1000000}, {type: linear, out_features: 10}]\n");
  const auto run = call_program("run huge.yaml", root.path());
  EXPECT_EQ(run.code, 3) << run.err;
  EXPECT_NE(run.err.find("[memory] expected a config that fits into"), std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("take a smaller model"), std::string::npos) << run.err;
  EXPECT_FALSE(std::filesystem::exists(root / "runs"));
}

TEST(MemoryNeed, TheRoomCanBeSaidWhereTheMachineDoesNotKnowIt) {
  const TemporaryFolder root;
  write_file(root / "c.yaml",
             "name: small\ndata: {set: synthetic_digits, train_size: 64, test_size: 32}\n"
             "model: {type: lenet5}\ntrain: {epochs: 1}\n");
  const auto refused = call_program("run c.yaml", root.path(), "CONVSCOPE_MEMORY_MIB=1");
  EXPECT_EQ(refused.code, 3) << refused.err;
  EXPECT_NE(refused.err.find("the 1.0 MiB that CONVSCOPE_MEMORY_MIB allows"), std::string::npos)
      << refused.err;
  EXPECT_FALSE(std::filesystem::exists(root / "runs"));
  for (const char* said : {"0", "1000"}) {
    const auto runs =
        call_program("run c.yaml -q", root.path(), std::string("CONVSCOPE_MEMORY_MIB=") + said);
    EXPECT_EQ(runs.code, 0) << runs.err;
  }
}

}  // namespace
}  // namespace convscope
