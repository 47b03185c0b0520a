// SPDX-License-Identifier: Apache-2.0
// killed_run_test.cpp: kills the program in the middle of an epoch and resumes the run. Tests that
// the result has the same bits as an uninterrupted run.
#include <chrono>
#include <csignal>
#include <thread>

#include "framework/io/safetensors.h"
#include "tests/experiments/program.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

// The config lists its layers, because it needs a dropout and LeNet-5 has none.
constexpr const char* kConfig = R"(name: small
data: {set: synthetic_digits, train_size: 640, test_size: 100, batch_size: 16}
layers:
  - {type: conv2d, out_channels: 4, kernel_size: 5}
  - {type: relu}
  - {type: max_pool2d, kernel_size: 4}
  - {type: flatten}
  - {type: dropout, p: 0.2}
  - {type: linear, out_features: 10}
optim: {type: adam, lr: 0.003, schedule: {type: cosine}}
train: {epochs: 3}
log: {every_steps: 1}
)";

class KilledRun : public ::testing::Test {
 protected:
  KilledRun() { std::ofstream(root_.path() + "/small.yaml") << kConfig; }

  Program start(const std::string& runs, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {
        kProgram,    "run", root_.path() + "/small.yaml", "-o", root_.path() + "/" + runs,
        "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return {words, root_.path() + "/" + runs};
  }
  std::string latest(const std::string& runs) const {
    return root_.path() + "/" + runs + "/small/latest";
  }
  // Waits until the run has logged `steps` steps; returns false after a timeout.
  bool wait_for_steps(const std::string& runs, std::int64_t steps) const {
    for (int i = 0; i < 6000; ++i) {
      const std::string rows = text_of(latest(runs) + "/metrics.jsonl");
      if (std::count(rows.begin(), rows.end(), '\n') >= steps) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  // Returns name and bytes of every tensor in the last checkpoint.
  std::map<std::string, std::string> tensors(const std::string& runs) const {
    std::map<std::string, std::string> out;
    for (const auto& [name, tensor] :
         read_safetensors(latest(runs) + "/ckpt/last.safetensors").tensors) {
      out[name] = std::string(static_cast<const char*>(tensor.raw_data()),
                              static_cast<std::size_t>(tensor.size_bytes()));
    }
    return out;
  }
  std::string errors(const std::string& runs) const {
    return text_of(root_.path() + "/" + runs + ".err");
  }

  TemporaryFolder root_;
};

TEST_F(KilledRun, by_sigterm_or_sigkill_in_an_epoch_ends_with_the_bits_of_one_left_alone) {
  ASSERT_EQ(start("whole").wait(), 0) << errors("whole");

  Program stopped = start("sigterm");
  ASSERT_TRUE(wait_for_steps("sigterm", 50)) << errors("sigterm");
  stopped.send(SIGTERM);
  EXPECT_EQ(stopped.wait(), 143) << errors("sigterm");
  const RunStatus status = read_run_status(latest("sigterm"));
  EXPECT_EQ(status.state, "INTERRUPTED");
  EXPECT_LT(status.step, 120);

  Program killed = start("sigkill");
  ASSERT_TRUE(wait_for_steps("sigkill", 60)) << errors("sigkill");
  killed.send(SIGKILL);
  EXPECT_EQ(killed.wait(), 1000 + SIGKILL);
  EXPECT_EQ(read_run_status(latest("sigkill")).state, "KILLED");

  for (const char* runs : {"sigterm", "sigkill"}) {
    EXPECT_EQ(start(runs, {"--resume", "auto"}).wait(), 0) << errors(runs);
    EXPECT_EQ(read_run_status(latest(runs)).state, "DONE");
    EXPECT_EQ(tensors(runs), tensors("whole")) << runs;
    const std::string rows = text_of(latest(runs) + "/metrics.jsonl");
    EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 3 * 40 + 3) << runs;
    for (const auto& file : std::filesystem::recursive_directory_iterator(latest(runs))) {
      EXPECT_EQ(file.path().string().find(".partial"), std::string::npos) << file.path();
    }
  }
}

TEST_F(KilledRun, that_is_quantised_from_its_middle_on_ends_with_the_same_bits) {
  const std::vector<std::string> quant = {"quant.w_bits=4", "quant.a_bits=4", "quant.begin=0.45",
                                          "quant.calibration_batches=3"};  // from step 54 of 120 on
  ASSERT_EQ(start("whole", quant).wait(), 0) << errors("whole");
  for (const auto& [runs, step] : {std::pair{"before", 45}, std::pair{"after", 90}}) {
    Program killed = start(runs, quant);
    ASSERT_TRUE(wait_for_steps(runs, step)) << errors(runs);
    killed.send(SIGKILL);
    EXPECT_EQ(killed.wait(), 1000 + SIGKILL);
    std::vector<std::string> more = quant;
    more.insert(more.end(), {"--resume", "auto"});
    EXPECT_EQ(start(runs, more).wait(), 0) << errors(runs);
    EXPECT_EQ(tensors(runs), tensors("whole")) << runs;
    EXPECT_EQ(text_of(latest(runs) + "/quant.csv"), text_of(latest("whole") + "/quant.csv"));
  }
}

TEST_F(KilledRun, that_is_still_running_is_not_resumed) {
  Program running = start("busy", {"train.epochs=1000"});
  ASSERT_TRUE(wait_for_steps("busy", 3)) << errors("busy");
  Program second({kProgram, "run", "--resume", latest("busy")}, root_.path() + "/second");
  EXPECT_EQ(second.wait(), 2);
  EXPECT_NE(errors("second").find("no process works on"), std::string::npos) << errors("second");
  running.send(SIGINT);
  EXPECT_EQ(running.wait(), 130);
}

TEST_F(KilledRun, with_another_config_is_not_resumed) {
  ASSERT_EQ(start("part", {"--epochs-limit", "1"}).wait(), 0) << errors("part");
  EXPECT_EQ(start("part", {"optim.lr=0.5", "--resume", "auto"}).wait(), 3);
  EXPECT_NE(errors("part").find("another one"), std::string::npos) << errors("part");
}

TEST_F(KilledRun, into_a_folder_that_cannot_be_made_exits_with_6) {
  std::ofstream(root_.path() + "/file") << "not a folder";
  EXPECT_EQ(start("file").wait(), 6);
  EXPECT_NE(errors("file").find("expected a folder that can be written"), std::string::npos);
}

TEST_F(KilledRun, that_misses_its_expectation_exits_with_1) {
  EXPECT_EQ(start("gate", {"train.epochs=1", "expect.test_acc_min=100"}).wait(), 1);
  EXPECT_NE(errors("gate").find("[expect]"), std::string::npos) << errors("gate");
  EXPECT_EQ(read_run_status(latest("gate")).state, "FAILED");
}

}  // namespace
}  // namespace convscope::testing
