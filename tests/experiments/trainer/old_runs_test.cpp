// SPDX-License-Identifier: Apache-2.0
// old_runs_test.cpp: tests that stored run folders of an earlier program still resume, report and
// evaluate. old_runs/README.md says how they were made.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <sstream>

#include "experiments/report/run_data.h"
#include "experiments/run_folder/run_folder.h"
#include "tests/support/call_program.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::call_shell;
using testing::Called;
using testing::TemporaryFolder;
using testing::text_of;

struct OldRun {
  const char* name;
  // Largest relative difference of a loss from that of the earlier program. Instruction sets add in
  // different orders, and a quantiser amplifies the differences: between scalar, AVX2 and AVX-512
  // the losses of these runs differ by 1.4e-5, 6e-2 and 1.2e-3.
  double tolerance;
};

// Copies a stored run to runs/<name>/old in `root`, and returns its folder. Git keeps only text, so
// the stored checkpoint is in base64.
std::string copy_of(const OldRun& run, const TemporaryFolder& root) {
  const std::string folder = root / (std::string("runs/") + run.name + "/old");
  std::filesystem::create_directories(folder);
  std::filesystem::copy(
      std::string(CONVSCOPE_SOURCE_DIR "/tests/experiments/trainer/old_runs/") + run.name, folder,
      std::filesystem::copy_options::recursive);
  const Called decoded = call_shell(
      "base64 -d last.safetensors.base64 >last.safetensors && rm last.safetensors.base64",
      folder + "/ckpt");
  EXPECT_EQ(decoded.code, 0) << decoded.err;
  return folder;
}

// Returns the losses of metrics.jsonl by "<split> <step>".
std::map<std::string, double> losses_of(const std::string& path) {
  std::map<std::string, double> out;
  std::istringstream rows(text_of(path));
  for (std::string row; std::getline(rows, row);) {
    const auto value_of = [&](const std::string& key) {
      const std::size_t at = row.find("\"" + key + "\":");
      return at == std::string::npos ? "" : row.substr(at + key.size() + 3);
    };
    const std::string split = value_of("split"), step = value_of("step");
    out[split.substr(1, split.find('"', 1) - 1) + " " + step.substr(0, step.find(','))] =
        std::stod(value_of("loss"));
  }
  return out;
}

class OldRuns : public ::testing::TestWithParam<OldRun> {};

TEST_P(OldRuns, ResumeReportAndEvaluate) {
  const TemporaryFolder root;
  const std::string folder = copy_of(GetParam(), root);
  const std::string metrics = folder + "/metrics.jsonl", before = text_of(metrics);
  const RunStatus stopped = read_run_status(folder);
  ASSERT_EQ(stopped.state, "INTERRUPTED");

  const std::string evaluation = cat("epoch ", stopped.epoch, "  step ", stopped.step, "\n");
  const Called early = call_program("eval " + folder, root.path());
  EXPECT_EQ(early.code, 0) << early.err;
  EXPECT_NE(early.out.find(evaluation), std::string::npos) << early.out;
  EXPECT_NE(early.out.find("\ntop-5 accuracy "), std::string::npos) << early.out;
  const Called report = call_program("report " + folder, root.path());
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_NE(report.out.find("INTERRUPTED | " + stopped.reason), std::string::npos) << report.out;

  const Called rest = call_program("run --resume " + folder, root.path());
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(text_of(folder + "/log.txt").find(cat(", step ", stopped.step, "\n")),
            std::string::npos);
  EXPECT_EQ(text_of(metrics).substr(0, before.size()), before);
  EXPECT_TRUE(std::filesystem::exists(folder + "/report.html"));
  const auto want = losses_of(folder + "/whole_metrics.jsonl"), got = losses_of(metrics);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [row, loss] : want) {
    ASSERT_TRUE(got.contains(row)) << row;
    EXPECT_NEAR(got.at(row), loss, GetParam().tolerance * loss) << row;
  }

  const RunData ended = read_run(folder);
  ASSERT_TRUE(ended.problems.empty()) << ended.problems[0];
  ASSERT_TRUE(ended.summary.has_value());
  EXPECT_EQ(ended.state, "DONE");
  EXPECT_EQ(ended.summary->epochs, 4);
  EXPECT_TRUE(ended.summary->test_top5.has_value());
  EXPECT_EQ(ended.epochs.rows.size(), 4u);
  const Called late = call_program("eval " + folder, root.path());
  EXPECT_EQ(late.code, 0) << late.err;
  ASSERT_NE(late.out.find("epoch 4"), std::string::npos) << late.out;
  EXPECT_NEAR(std::stod(late.out.substr(late.out.find("loss ") + 5)), *ended.summary->test_loss,
              1e-5 * *ended.summary->test_loss);
}

INSTANTIATE_TEST_SUITE_P(All, OldRuns,
                         ::testing::Values(OldRun{"sgd", 1e-3}, OldRun{"quantised", 0.25},
                                           OldRun{"removed", 0.02}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace convscope
