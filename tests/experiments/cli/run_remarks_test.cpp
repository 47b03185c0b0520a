// SPDX-License-Identifier: Apache-2.0
// run_remarks_test.cpp: tests the remarks in which `convscope run` qualifies its results. They
// concern missed limits of `expect`, the choice of the best weights, masks and quantisers, and a
// busy machine.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/run_folder/machine_load.h"
#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::call_shell;
using testing::Called;

const std::string kSmall =
    "run quickstart train.epochs=1 data.train_size=128 data.test_size=20 expect=null ";

std::string log_of(const testing::TemporaryFolder& folder) {
  return testing::text_of(folder / "runs/quickstart/latest/log.txt");
}

TEST(RunRemarks, AMissedGateComesAfterTheTableAndSaysItsKey) {
  const testing::TemporaryFolder folder;
  const auto run = [&](const std::string& gate) {
    return call_program(
        "run quickstart train.epochs=1 data.train_size=128 data.test_size=20 expect=null " + gate,
        folder.path());
  };
  const Called accuracy = run("expect.test_acc_min=100");
  EXPECT_EQ(accuracy.code, 1);
  EXPECT_NE(accuracy.out.find("| acc "), std::string::npos) << accuracy.out;
  EXPECT_NE(
      accuracy.err.find("expect.test_acc_min=VALUE changes this limit, expect=null removes it"),
      std::string::npos)
      << accuracy.err;
  EXPECT_NE(accuracy.err.find("at least 100 % after epoch 1"), std::string::npos) << accuracy.err;
  const Called loss = run("expect.test_loss_max=0.001");
  EXPECT_EQ(loss.code, 1);
  EXPECT_NE(loss.out.find("| acc "), std::string::npos) << loss.out;
  EXPECT_NE(loss.err.find("expect.test_loss_max=VALUE changes"), std::string::npos) << loss.err;
}

TEST(RunRemarks, BestOnTestImagesIsAWarning) {
  const testing::TemporaryFolder folder;
  const std::string part = "warning: best.safetensors and best_acc are chosen on the test images";
  EXPECT_NE(call_program(kSmall, folder.path()).err.find(part), std::string::npos);
  EXPECT_NE(log_of(folder).find(part), std::string::npos) << log_of(folder);
  for (const std::string cure : {"data.val_split=30", "checkpoint.best=false"}) {
    EXPECT_EQ(call_program(kSmall + cure, folder.path()).err.find(part), std::string::npos) << cure;
    EXPECT_EQ(log_of(folder).find(part), std::string::npos) << cure;
  }
}

TEST(RunRemarks, MasksAndQuantisersSayHowTheyRun) {
  const testing::TemporaryFolder folder;
  const Called masked = call_program(
      kSmall + "\"sparsity={method: magnitude, target: 0.5, every_steps: 1}\"", folder.path());
  EXPECT_NE(masked.err.find("runs   masked dense: zeros are multiplied"), std::string::npos)
      << masked.err;
  EXPECT_NE(log_of(folder).find("masked dense"), std::string::npos);
  const Called quantised = call_program(kSmall + "\"quant={w_bits: 4, a_bits: 4}\"", folder.path());
  EXPECT_NE(quantised.err.find("runs   fake-quant f32: numbers are rounded and multiplied in f32"),
            std::string::npos)
      << quantised.err;
  EXPECT_EQ(call_program(kSmall, folder.path()).err.find("runs  "), std::string::npos);
}

TEST(RunRemarks, AnExportCountsInTheWordsOfTheRun) {
  const testing::TemporaryFolder folder;
  const Called run = call_program(
      "run quickstart train.epochs=2 data.train_size=256 data.test_size=20 expect=null "
      "\"sparsity={method: magnitude, target: 0.99, start: 0, every_steps: 1}\"",
      folder.path());
  ASSERT_EQ(run.code, 0) << run.err;
  const Called made =
      call_program("export runs/quickstart --compact small.safetensors", folder.path());
  ASSERT_EQ(made.code, 0) << made.err;
  // The run prints that, for example, 4 of the 6 filters of c1 are alive ("c1 ... 4 of 6 ..."). The
  // export must say "(4 alive)" with the same number.
  const std::size_t row = run.err.find("\nc1 ");
  const std::size_t of = run.err.find(" of 6", row);
  ASSERT_NE(of, std::string::npos) << run.err;
  const std::string alive = run.err.substr(run.err.rfind(' ', of - 1) + 1, of);
  const std::string count = alive.substr(0, alive.find(' '));
  ASSERT_NE(count, "6") << "the case shows nothing";
  EXPECT_NE(made.out.find(" of 6 (" + count + " alive)"), std::string::npos) << made.out;
  EXPECT_NE(made.out.find("kept but not alive: "), std::string::npos) << made.out;
}

TEST(MachineLoad, WarnsWhenThreadsHaveNoCoreEach) {
  EXPECT_EQ(load_warning(std::nullopt, 2, 2), "");
  EXPECT_EQ(load_warning(0.4, 2, 2), "");
  EXPECT_EQ(load_warning(0.9, 1, 2), "");
  EXPECT_EQ(load_warning(0.9, 2, 2),
            "warning: other programs keep 0.9 of 2 cores busy: the times of 2 threads here are not "
            "reliable");
  EXPECT_NE(load_warning(15.5, 1, 16), "");
  EXPECT_EQ(load_warning(5, 4, 64), "");
}

TEST(MachineLoad, IsSeenByRunAndBench) {
  if (call_shell("test $(nproc) = $(getconf _NPROCESSORS_ONLN)").code != 0) {
    GTEST_SKIP() << "this process may not use all cores, so the test cannot keep them busy";
  }
  const testing::TemporaryFolder folder;
  // Starts one busy program per core; each runs until the command ends.
  const auto call_beside = [&](const std::string& arguments) {
    return call_shell(
        "pids=; for i in $(seq $(nproc)); do timeout 60 sh -c 'while :; do :; done' & "
        "pids=\"$pids $!\"; done; " CONVSCOPE_BINARY_DIR "/bin/convscope " +
            arguments + "; code=$?; kill $pids; exit $code",
        folder.path());
  };
  const Called run = call_beside(kSmall);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("warning: other programs keep "), std::string::npos) << run.err;
  EXPECT_NE(log_of(folder).find("warning: other programs keep "), std::string::npos);
  const auto env = nlohmann::json::parse(
      testing::text_of(folder / "runs/quickstart/latest/env.json"), nullptr, false);
  ASSERT_TRUE(env.contains("cores_of_others")) << env;
  EXPECT_GT(env["cores_of_others"], 0.3);
  const std::string bench =
      "bench net lenet5 --batch 1 --mode inference --min-time 0.001 --rounds 1";
  const Called timed = call_beside(bench);
  EXPECT_EQ(timed.code, 0) << timed.err;
  EXPECT_NE(timed.err.find("warning: other programs keep "), std::string::npos) << timed.err;
  EXPECT_EQ(call_beside(bench + " -q").err, "");
}

}  // namespace
}  // namespace convscope
