// SPDX-License-Identifier: Apache-2.0
// op_conv_transpose2d_test.cpp: the transposed convolution in the commands `op`, `bench` and
// `check`: results, files, exit codes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "framework/io/npy.h"
#include "layers/conv_transpose2d/conv_transpose2d.h"
#include "tests/experiments/cli/op_files.h"
#include "tests/support/call_program.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

const ConvTranspose2dParams kParams{
    .conv = {.stride_h = 2, .stride_w = 3, .padding = {1, 1, 0, 0}, .groups = 2},
    .output_padding_h = 1,
    .output_padding_w = 2};

class OpConvTranspose2d : public OpFiles {
 protected:
  void SetUp() override {
    write_npy(at("x.npy"), x_);
    write_npy(at("w.npy"), w_);
    write_npy(at("b.npy"), b_);
    write_npy(at("dy.npy"), dy_);
  }
  int run(const Words& more) {
    return call_op({"conv_transpose2d", "--x", at("x.npy"), "--w", at("w.npy"), "--b", at("b.npy"),
                    "--dy", at("dy.npy"), "--stride", "2,3", "--padding", "1,0", "--groups", "2"},
                   more);
  }

  const Tensor x_ = normal({2, 4, 5, 3}, DType::f32, 1), w_ = normal({4, 3, 3, 2}, DType::f32, 2),
               b_ = normal({6}, DType::f32, 3), dy_ = normal({2, 6, 10, 10}, DType::f32, 4);
};

TEST_F(OpConvTranspose2d, WritesTheResultsOfTheLayer) {
  ASSERT_EQ(run({"--output-padding", "1,2", "--algorithm", "direct", "--out-y", at("y.npy"),
                 "--out-dx", at("dx.npy"), "--out-dw", at("dw.npy"), "--out-db", at("db.npy")}),
            0)
      << errors_;
  Variable x(x_, true), w(w_, true), b(b_, true);
  const Variable y = conv_transpose2d(x, w, b, kParams, {"direct", "direct", "direct"});
  y.backward(dy_);
  EXPECT_TRUE(near(read_npy(at("y.npy")), y.value(), 1e-5, 0));
  EXPECT_TRUE(near(read_npy(at("dx.npy")), x.grad(), 1e-4, 0));
  EXPECT_TRUE(near(read_npy(at("dw.npy")), w.grad(), 1e-4, 0));
  EXPECT_TRUE(near(read_npy(at("db.npy")), b.grad(), 1e-4, 0));
}

TEST_F(OpConvTranspose2d, RefusesBadInputInASentence) {
  EXPECT_NE(run({"--output-padding", "2", "--out-y", at("y.npy")}), 0);
  EXPECT_NE(errors_.find("expected an output_padding below the stride or the dilation, got 2x2"),
            std::string::npos)
      << errors_;
  EXPECT_NE(run({"--output-padding", "0", "--out-dx", at("dx.npy")}), 0);
  EXPECT_NE(errors_.find("expected dy [2,6,9,8]"), std::string::npos) << errors_;
}

TEST_F(OpConvTranspose2d, ChecksTwoAlgorithmsAgainstEachOther) {
  ASSERT_EQ(run({"--output-padding", "1,2", "--algorithm", "check:direct,im2col_gemm", "--out-y",
                 at("y.npy")}),
            0)
      << errors_;
}

TEST(BenchConvTranspose2d, TimesAlgorithmsThatAreRight) {
  const Called called = call_program(
      "bench conv_transpose2d --problem n=2,c=16,h=6,w=5,k=16,r=3,s=3,stride=2,pad=1,opad=1 "
      "--min-time 0.001 --json -");
  ASSERT_EQ(called.code, 0) << called.out << called.err;
  const auto file = nlohmann::json::parse(called.out);
  EXPECT_EQ(file["format"], "convscope bench conv_transpose2d 1");
  EXPECT_GE(file["rows"].size(), 6u);
  for (const auto& row : file["rows"]) EXPECT_EQ(row["status"], "ok") << row;
}

// The baseline is asked for the convolution that has the transposed one as a gradient.
TEST(BenchConvTranspose2d, AsksABaselineForTheSameConvolution) {
  setenv("CONVSCOPE_BASELINE_DIR", CONVSCOPE_BINARY_DIR "/bad_plugins/says", 1);
  const Called called = call_program(
      "bench conv_transpose2d --problem n=2,c=16,h=6,w=5,k=8,r=3,s=3,stride=2,pad=1,opad=1 "
      "--algorithm direct --baseline onednn --min-time 0.001 --json -");
  unsetenv("CONVSCOPE_BASELINE_DIR");
  ASSERT_EQ(called.code, 0) << called.out << called.err;
  const auto file = nlohmann::json::parse(called.out);
  EXPECT_EQ(file["baseline"]["name"], "bad");
  const std::map<std::string, int> directions = {
      {"forward", 1}, {"backward_data", 0}, {"backward_weight", 2}};
  ASSERT_EQ(file["refusals"].size(), 3u);
  for (const auto& refusal : file["refusals"]) {
    EXPECT_EQ(refusal["problem"],
              "n=2,c=16,h=6,w=5,k=8,r=3,s=3,stride=2,pad=1,dilation=1,groups=1,opad=1");
    EXPECT_EQ(refusal["reason"], cat("direction ", directions.at(refusal["direction"]),
                                     " of x [2,8,12,10], y [2,16,6,5]"));
  }
}

}  // namespace
}  // namespace convscope::testing
