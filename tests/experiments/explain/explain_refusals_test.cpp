// SPDX-License-Identifier: Apache-2.0
// explain_refusals_test.cpp: tests how `explain` and `run` report refused algorithms and refused
// lists of algorithms, and what a run reports about the policy check:a,b.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;

// LeNet has kernels of 5x5, which Winograd's F(4x4,3x3) refuses.
const std::string kQuickstart = CONVSCOPE_SOURCE_DIR "/experiments/configs/quickstart.yaml ";

::testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "expected '" << part << "' in\n" << text;
}

TEST(ExplainRefusals, TheTableComesFirstThenTheErrorWithTheLayers) {
  for (const char* plan : {"", " train.plan=false"}) {
    const Called answer =
        call_program("explain " + kQuickstart + "conv.algorithm=winograd_f4x3" + plan);
    EXPECT_EQ(answer.code, 5);
    EXPECT_TRUE(has(answer.out, "\nc1  "));
    EXPECT_TRUE(has(answer.out, "\nc2  "));
    EXPECT_TRUE(has(answer.out, "!winograd_f4x3"));
    EXPECT_TRUE(has(answer.out, "\n! c1: 'winograd_f4x3' expects"));
    EXPECT_TRUE(has(answer.out, "; accepted by "));
    EXPECT_TRUE(has(answer.out, "training: does not run"));
    EXPECT_TRUE(has(answer.err,
                    "[explain] expected algorithms that accept their layers, but layers "
                    "c1, c2: 'winograd_f4x3' expects"));
    EXPECT_TRUE(has(answer.err, "; add conv.algorithm=winograd_f4x3,auto to take another"));
    EXPECT_EQ(answer.err.find('\n'), answer.err.size() - 1) << answer.err;
  }
}

TEST(ExplainRefusals, TheFullTableMarksTheRefusedChoice) {
  const Called answer =
      call_program("explain " + kQuickstart + "--layer c2 conv.per_layer.c2.forward=winograd_f4x3");
  EXPECT_EQ(answer.code, 5);
  EXPECT_TRUE(
      has(answer.out, "  forward (winograd_f4x3): nothing runs: an algorithm refuses this"));
  EXPECT_TRUE(has(answer.out, "    'winograd_f4x3' expects"));
  EXPECT_TRUE(has(answer.out, "; accepted by "));
  EXPECT_TRUE(has(answer.out, "\n    ! winograd_f4x3 "));
  EXPECT_TRUE(has(answer.err, "layer c2 (forward): 'winograd_f4x3' expects"));
  EXPECT_TRUE(has(answer.err, "add conv.per_layer.c2.forward=winograd_f4x3,auto to take another"));
}

// The gradient of the images is not needed.
TEST(ExplainRefusals, ADirectionThatNobodyAsksForMayBeRefused) {
  const std::string word = "conv.per_layer.c1.backward_data=winograd_f4x3";
  const Called answer = call_program("explain --layer c1 " + kQuickstart + word);
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(
      has(answer.out, "backward_data (winograd_f4x3): not run: this gradient is not needed"));
  EXPECT_TRUE(has(answer.out, "\n    ! winograd_f4x3 "));
  const testing::TemporaryFolder runs;
  const std::string few =
      " data.train_size=64 data.test_size=64 train.epochs=1 expect.test_acc_min=null -o " +
      runs.path();
  const Called run = call_program("run " + kQuickstart + word + few);
  EXPECT_EQ(run.code, 0) << run.err;
}

TEST(ExplainRefusals, ALayersOwnAlgorithmIsNamedByItsKey) {
  const Called answer =
      call_program("explain " CONVSCOPE_SOURCE_DIR
                   "/experiments/configs/synthetic_layers_list.yaml layers.3.algorithm=gemm_1x1");
  EXPECT_EQ(answer.code, 5) << answer.out;
  EXPECT_TRUE(has(answer.err, "add layers.3.algorithm=gemm_1x1,auto to take another"));
}

TEST(ExplainRefusals, AreInTheJson) {
  const Called answer =
      call_program("explain --json " + kQuickstart + "conv.per_layer.c2=winograd_f4x3,gemm_1x1");
  EXPECT_EQ(answer.code, 5);
  const nlohmann::json all = nlohmann::json::parse(answer.out);
  const nlohmann::json& forward = all.at("convolutions").at(1).at("directions").at("forward");
  EXPECT_EQ(forward.at("policy"), "winograd_f4x3,gemm_1x1");
  EXPECT_EQ(forward.at("taken"), "");
  EXPECT_EQ(forward.at("refusals").size(), 2u);
  EXPECT_TRUE(has(forward.at("error"), "layer c2: expected an algorithm that can compute"));
  int refused = 0;
  for (const auto& one : forward.at("algorithms")) {
    EXPECT_FALSE(one.at("chosen").get<bool>());
    refused += one.at("refused").get<bool>() ? 1 : 0;
  }
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(all.at("steps").at(0).at("execution"), "none");
  EXPECT_TRUE(has(all.at("steps").at(0).at("error"), "[conv2d] layer c2: "));
}

TEST(RunRefusals, NameTheLayerAndWhatToWrite) {
  for (const char* plan : {"", " train.plan=false"}) {
    const Called answer =
        call_program("run " + kQuickstart + "conv.per_layer.c2=winograd_f4x3 -o /nowhere" + plan);
    EXPECT_EQ(answer.code, 5) << answer.err;
    EXPECT_TRUE(
        has(answer.err, "[conv2d] layer c2: expected an algorithm that can compute forward"));
    EXPECT_TRUE(has(answer.err, "'winograd_f4x3,auto' takes one of them"));
  }
}

TEST(ExplainLists, SayWhichWordWasTakenAndWhy) {
  const Called answer =
      call_program("explain " + kQuickstart + "conv.algorithm=winograd_f4x3,im2col_gemm");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.out,
                  "c1, c2: winograd_f4x3,im2col_gemm takes im2col_gemm, because "
                  "'winograd_f4x3' expects"));
  EXPECT_EQ(answer.out.find('!'), std::string::npos) << answer.out;
  const Called layer =
      call_program("explain --layer c1 " + kQuickstart + "conv.forward=winograd_f4x3,im2col_gemm");
  EXPECT_TRUE(has(layer.out, "forward (winograd_f4x3,im2col_gemm): runs im2col_gemm, planned"));
  EXPECT_TRUE(has(layer.out, "; im2col_gemm is taken"));
  EXPECT_TRUE(has(layer.out, "\n    ! winograd_f4x3 "));
  EXPECT_TRUE(has(layer.out, "\n    * im2col_gemm "));
}

TEST(ExplainLists, BehindARefusalAutoIsFreeToChoose) {
  const std::string list = call_program("explain " + kQuickstart +
                                        "conv.algorithm=winograd_f4x3,"
                                        "auto --json")
                               .out;
  const std::string free = call_program("explain " + kQuickstart + "--json").out;
  ASSERT_FALSE(list.empty());
  EXPECT_EQ(nlohmann::json::parse(list).at("steps").at(0).at("kernels"),
            nlohmann::json::parse(free).at("steps").at(0).at("kernels"));
}

TEST(RunLists, RunTheWordThatWasTaken) {
  const testing::TemporaryFolder runs;
  const Called answer = call_program(
      "run " + kQuickstart + "conv.algorithm=winograd_f4x3,im2col_gemm_eigen data.train_size=64 " +
      "data.test_size=64 train.epochs=1 expect.test_acc_min=null --name listed -o " + runs.path());
  EXPECT_EQ(answer.code, 0) << answer.err;
  std::stringstream layers;
  layers << std::ifstream(runs / "listed/latest/layers.csv").rdbuf();
  EXPECT_TRUE(has(layers.str(), ",im2col_gemm_eigen,-,im2col_gemm_eigen,planned"));
}

TEST(RunChecks, EndWithWhatWasCompared) {
  const testing::TemporaryFolder runs;
  const std::string words = kQuickstart + "conv.per_layer.c1.forward=check:direct,im2col_gemm ";
  const Called explained = call_program("explain " + words);
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_TRUE(has(explained.out, "c1 (forward): each call runs direct and im2col_gemm, compares"));
  const Called answer =
      call_program("run " + words + "data.train_size=64 data.test_size=64 data.batch_size=16 " +
                   "train.epochs=1 expect.test_acc_min=null --name checked -o " + runs.path());
  EXPECT_EQ(answer.code, 0) << answer.err;
  const std::string line = "check  c1 forward: direct against im2col_gemm, largest difference ";
  EXPECT_TRUE(has(answer.err, line));
  EXPECT_TRUE(has(answer.err, "), 8 calls\n"));  // 4 training steps, 4 batches of the test images
  std::stringstream log;
  log << std::ifstream(runs / "checked/latest/log.txt").rdbuf();
  EXPECT_TRUE(has(log.str(), line));
}

}  // namespace
}  // namespace convscope
