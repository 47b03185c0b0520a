// SPDX-License-Identifier: Apache-2.0
// op_lsq_test.cpp: `convscope op lsq` on files: results, exit codes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/io/npy.h"
#include "quant/lsq.h"
#include "tests/experiments/cli/op_files.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

class OpLsqCommand : public testing::OpFiles {
 protected:
  void SetUp() override {
    write_npy(at("v.npy"), v_);
    write_npy(at("step.npy"), step_);
    write_npy(at("dy.npy"), dy_);
  }

  // Returns the exit code of `convscope op lsq --v v.npy --step step.npy <more>`.
  int run(const Words& more) {
    return call_op({"lsq", "--v", at("v.npy"), "--step", at("step.npy")}, more);
  }

  const Tensor v_ = testing::normal({4, 3, 2, 2}, DType::f32, 1);
  const Tensor step_ = testing::uniform({4}, 0.1f, 0.5f, DType::f32, 2);  // one for each row
  const Tensor dy_ = testing::normal({4, 3, 2, 2}, DType::f32, 3);
};

TEST_F(OpLsqCommand, WritesRoundedValuesAndBothGradients) {
  ASSERT_EQ(run({"--bits", "3", "--unsigned", "--g", "0.25", "--dy", at("dy.npy"), "--out-y",
                 at("y.npy"), "--out-dv", at("dv.npy"), "--out-dstep", at("ds.npy")}),
            0)
      << errors_;
  const Variable v(v_, true), step(step_, true);
  const Variable y = lsq_quantize(v, step, {.grid = integer_grid(3, false), .g = 0.25});
  y.backward(dy_);
  EXPECT_TRUE(testing::same_bits(read_npy(at("y.npy")), y.value()));
  EXPECT_TRUE(testing::same_bits(read_npy(at("dv.npy")), v.grad()));
  EXPECT_TRUE(testing::same_bits(read_npy(at("ds.npy")), step.grad()));
  for (std::int64_t i = 0; i < v_.numel(); ++i) {  // 3 unsigned bits: codes 0 to 7
    const double code = y.value().at(i) / step_.at(i / 12);
    EXPECT_NEAR(code, std::round(code), 1e-5);
    EXPECT_GE(code, 0);
    EXPECT_LE(code, 7 + 1e-5);
  }
}

TEST_F(OpLsqCommand, TakesThePapersScaleOfTheStepsGradient) {
  ASSERT_EQ(run({"--bits", "4", "--dy", at("dy.npy"), "--out-dstep", at("own.npy")}), 0);
  // The expected gradient scale is g = 1 / sqrt(N Qp) with N = 12 elements per step size and the
  // largest quantised value Qp = 7.
  ASSERT_EQ(run({"--bits", "4", "--g", std::to_string(1 / std::sqrt(12 * 7.0)), "--dy",
                 at("dy.npy"), "--out-dstep", at("given.npy")}),
            0);
  // std::to_string gives six decimals of 0.109.
  EXPECT_TRUE(testing::near(read_npy(at("own.npy")), read_npy(at("given.npy")), 1e-6, 1e-5));
}

TEST_F(OpLsqCommand, AnswersMistakesWithTheirExitCodes) {
  const std::string y = at("y.npy");
  EXPECT_EQ(run({}), 2);
  EXPECT_NE(errors_.find("expected --out-y, --out-dv or --out-dstep, got none"), std::string::npos);
  EXPECT_EQ(run({"--out-dv", y}), 2);
  EXPECT_NE(errors_.find("expected --dy because a gradient is asked for"), std::string::npos);
  EXPECT_EQ(run({"--bits", "9", "--out-y", y}), 2);
  EXPECT_EQ(run({"--g", "-1", "--out-y", y}), 2);
  EXPECT_EQ(run({"--dy", at("step.npy"), "--out-dv", y}), 2);
  EXPECT_NE(errors_.find("expected dy like v because that is y"), std::string::npos) << errors_;
  write_npy(at("step.npy"), Tensor::full({3}, 0.1));
  EXPECT_EQ(run({"--out-y", y}), 2) << "three steps for four rows";
  for (const double wrong : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    write_npy(at("step.npy"), Tensor::full({1}, wrong));
    EXPECT_EQ(run({"--out-y", y}), 2) << wrong;
    EXPECT_NE(errors_.find("expected finite steps above 0"), std::string::npos) << errors_;
  }
  write_npy(at("step.npy"), Tensor::empty({0}));
  EXPECT_EQ(run({"--out-y", y}), 2);
  EXPECT_NE(errors_.find("expected at least one step"), std::string::npos);
  std::filesystem::remove(at("step.npy"));
  EXPECT_EQ(run({"--out-y", y}), 6);
  EXPECT_FALSE(std::filesystem::exists(y));
}

}  // namespace
}  // namespace convscope
