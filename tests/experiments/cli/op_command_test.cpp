// SPDX-License-Identifier: Apache-2.0
// op_command_test.cpp: `convscope op conv2d` on files: results, exit codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "framework/io/npy.h"
#include "layers/conv2d/conv2d.h"
#include "tests/experiments/cli/op_files.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

class OpConv2dCommand : public testing::OpFiles {
 protected:
  void SetUp() override {
    write_npy(at("x.npy"), x_);
    write_npy(at("w.npy"), w_);
    write_npy(at("b.npy"), b_);
    write_npy(at("dy.npy"), dy_);
  }

  // Returns the exit code of `convscope op conv2d --x x.npy --w w.npy <more>`.
  int run(const Words& more) {
    return call_op({"conv2d", "--x", at("x.npy"), "--w", at("w.npy")}, more);
  }

  const Tensor x_ = testing::normal({2, 4, 9, 7}, DType::f32, 1);
  const Tensor w_ = testing::normal({6, 2, 3, 2}, DType::f32, 2);
  const Tensor b_ = testing::normal({6}, DType::f32, 3);
  const Tensor dy_ = testing::normal({2, 6, 5, 9}, DType::f32, 4);
};

TEST_F(OpConv2dCommand, WritesTheResultAndAllGradients) {
  ASSERT_EQ(run({"--b", at("b.npy"), "--dy", at("dy.npy"), "--stride", "2,1", "--padding",
                 "1,2,0,3", "--groups", "2", "--out-y", at("y.npy"), "--out-dx", at("dx.npy"),
                 "--out-dw", at("dw.npy"), "--out-db", at("db.npy")}),
            0)
      << errors_;
  Variable x(x_, true);
  Variable w(w_, true);
  Variable b(b_, true);
  const Variable y = conv2d(x, w, b, {.stride_h = 2, .padding = {1, 2, 0, 3}, .groups = 2});
  y.backward(dy_);
  EXPECT_TRUE(testing::same_bits(read_npy(at("y.npy")), y.value()));
  EXPECT_TRUE(testing::same_bits(read_npy(at("dx.npy")), x.grad()));
  EXPECT_TRUE(testing::same_bits(read_npy(at("dw.npy")), w.grad()));
  EXPECT_TRUE(testing::same_bits(read_npy(at("db.npy")), b.grad()));
}

TEST_F(OpConv2dCommand, TakesListsAndSaysWhatACheckFound) {
  const std::vector<std::string> words = {"--groups", "2", "--out-y", at("y.npy"), "--algorithm"};
  const auto with = [&](const char* algorithm) {
    std::vector<std::string> out = words;
    out.emplace_back(algorithm);
    return out;
  };
  EXPECT_EQ(run(with("winograd_f4x3,im2col_gemm")), 0) << errors_;
  EXPECT_NE(errors_.find("forward: im2col_gemm\n"), std::string::npos) << errors_;
  EXPECT_EQ(errors_.find("check"), std::string::npos) << errors_;
  EXPECT_EQ(run(with("check:im2col_gemm,reference")), 0) << errors_;
  EXPECT_NE(errors_.find("check  forward: im2col_gemm against reference, largest difference "),
            std::string::npos)
      << errors_;
  EXPECT_NE(errors_.find("), 1 call\n"), std::string::npos) << errors_;
  EXPECT_EQ(run(with("winograd_f4x3,gemm_1x1")), 5);
  EXPECT_NE(errors_.find("but 'winograd_f4x3' expects"), std::string::npos) << errors_;
  EXPECT_NE(errors_.find(" and 'gemm_1x1' expects"), std::string::npos) << errors_;
}

TEST_F(OpConv2dCommand, AnswersMistakesWithTheirExitCodes) {
  const std::string y = at("y.npy");
  EXPECT_EQ(run({"--groups", "2"}), 2);  // no output requested
  EXPECT_EQ(run({"--groups", "2", "--out-dx", y}), 2);
  EXPECT_NE(errors_.find("expected --dy because a gradient is asked for"), std::string::npos);
  EXPECT_EQ(run({"--groups", "2", "--out-y", y, "--padding", "1,2,3"}), 2);
  EXPECT_EQ(run({"--groups", "2", "--out-y", y, "--stride", "two"}), 2);
  EXPECT_EQ(run({"--out-y", y}), 2);  // groups missing
  EXPECT_NE(errors_.find("expected x with 2 channels because w is [6,2,3,2]"), std::string::npos);
  EXPECT_EQ(run({"--groups", "2", "--out-y", y, "--algorithm", "im2col"}), 5);
  EXPECT_EQ(run({"--groups", "2", "--out-y", y, "--b", at("absent.npy")}), 6);
  EXPECT_EQ(run({"--groups", "2", "--out-y", at("absent/y.npy")}), 6);
  EXPECT_EQ(run({"--groups", "2", "--dy", at("x.npy"), "--out-dw", y}), 2);
  EXPECT_NE(errors_.find("expected dy [2,6,7,6]"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(y));
}

}  // namespace
}  // namespace convscope
