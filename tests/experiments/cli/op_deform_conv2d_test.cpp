// SPDX-License-Identifier: Apache-2.0
// op_deform_conv2d_test.cpp: `convscope op deform_conv2d` on files: results, checks, exit codes.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "framework/io/npy.h"
#include "tests/experiments/cli/op_files.h"
#include "tests/layers/deform_conv2d/deform_case.h"
#include "tests/support/numbers.h"

namespace convscope::testing {
namespace {

using Problem = DeformConv2dProblem;
using Words = std::vector<std::string>;

// A problem in which every option differs from its default.
const Problem kProblem = Problem::parse(
    "n=2,c=8,h=9,w=7,k=6,r=3,s=2,stride=2x1,pad=1x2x0x3,dilation=1x2,groups=2,offset_groups=4");
const Words kSizes = {"--stride", "2,1",      "--padding", "1,2,0,3",         "--dilation",
                      "1,2",      "--groups", "2",         "--offset-groups", "4"};

class OpDeformCommand : public OpFiles {
 protected:
  void SetUp() override { write_all(tensors_); }

  void write_all(const DeformConv2dTensors& t) {
    write_npy(at("x.npy"), t.x);
    write_npy(at("w.npy"), t.w);
    write_npy(at("b.npy"), t.b);
    write_npy(at("offset.npy"), t.offset);
    if (t.mask.defined()) write_npy(at("mask.npy"), t.mask);
    write_npy(at("dy.npy"), t.dy);
  }

  // Calls `convscope op deform_conv2d --x x.npy --offset offset.npy --w w.npy <more>` and returns
  // its exit code.
  int run(const Words& more) {
    return call_op(
        {"deform_conv2d", "--x", at("x.npy"), "--offset", at("offset.npy"), "--w", at("w.npy")},
        more);
  }
  int run(Words more, const Words& and_more) {
    more.insert(more.end(), and_more.begin(), and_more.end());
    return run(more);
  }

  // Expects that the command's output files equal the outputs of a direct call of the algorithm
  // `name`.
  void expect_outputs(const Problem& z, const DeformConv2dTensors& t, const Words& sizes,
                      const std::string& name) {
    Words words = {"--b",      at("b.npy"),  "--dy",          at("dy.npy"),
                   "--out-y",  at("y.npy"),  "--out-dx",      at("dx.npy"),
                   "--out-dw", at("dw.npy"), "--out-doffset", at("doffset.npy"),
                   "--out-db", at("db.npy"), "--algorithm",   name};
    if (z.mask) words.insert(words.end(), {"--mask", at("mask.npy"), "--out-dmask", at("dm.npy")});
    ASSERT_EQ(run(words, sizes), 0) << errors_;
    const auto& algorithm = deform_conv2d_algorithms(DeviceType::cpu).get(name);
    const auto expect = [&](Direction direction, const Words& names) {
      Operands operands = deform_conv2d_operands(direction, t);
      const OperandSpecs specs = z.operands(direction);
      ASSERT_EQ(specs.outputs.size(), names.size());
      for (std::size_t i = 0; i < names.size(); ++i) {
        operands.out[i].values = Tensor::empty(specs.outputs[i].desc.shape, z.dtype);
      }
      run_algorithm(algorithm, z, direction, operands);
      for (std::size_t i = 0; i < names.size(); ++i) {
        EXPECT_TRUE(same_bits(read_npy(at(names[i])), operands.out[i].values)) << names[i];
      }
    };
    expect(Direction::forward, {"y.npy"});
    Words data = {"dx.npy", "doffset.npy"};
    if (z.mask) data.emplace_back("dm.npy");
    expect(Direction::backward_data, data);
    expect(Direction::backward_weight, {"dw.npy"});
    const Tensor db = read_npy(at("db.npy"));
    ASSERT_EQ(db.shape(), Shape({z.k}));
    const std::int64_t pixels = z.p() * z.q();
    for (std::int64_t k = 0; k < z.k; ++k) {
      double sum = 0, size = 0;
      for (std::int64_t i = 0; i < z.n * pixels; ++i) {
        const double value = t.dy.at((i / pixels * z.k + k) * pixels + i % pixels);
        sum += value;
        size += std::abs(value);
      }
      // The error bound allows one rounding for each addition and one for the final result.
      const double terms = static_cast<double>(z.n * pixels);
      EXPECT_NEAR(db.at(k), sum, terms * eps_of(z.dtype, z.math) * size) << k;
    }
  }

  const DeformConv2dTensors tensors_ = deform_tensors(kProblem, matrix::Tier::bounded);
};

TEST_F(OpDeformCommand, WritesTheResultAndAllGradients) {
  expect_outputs(kProblem, tensors_, kSizes, "reference");
  expect_outputs(kProblem, tensors_, kSizes, "fused");
}

TEST_F(OpDeformCommand, IsVersionOneWithoutAMask) {
  Problem z = kProblem;
  z.mask = false;
  DeformConv2dTensors t = tensors_;
  t.mask = {};
  expect_outputs(z, t, kSizes, "im2col_gemm");
  EXPECT_NE(errors_.find("offset_groups=4,mask=0\n"), std::string::npos) << errors_;
}

TEST_F(OpDeformCommand, ComputesInTheTypeOfTheFiles) {
  Problem z = kProblem;
  z.dtype = DType::f64;
  DeformConv2dTensors t = tensors_;
  for (Tensor* one : {&t.x, &t.w, &t.offset, &t.mask, &t.b, &t.dy}) *one = one->to(DType::f64);
  write_all(t);
  expect_outputs(z, t, kSizes, "reference");
}

TEST_F(OpDeformCommand, WritesZerosForABatchOfNoImages) {
  const Problem z = Problem::parse("n=0,c=2,h=4,w=5,k=3,r=3,s=3,pad=1");
  write_all(deform_tensors(z, matrix::Tier::bounded));
  ASSERT_EQ(run({"--mask", at("mask.npy"), "--padding", "1", "--dy", at("dy.npy"), "--out-y",
                 at("y.npy"), "--out-dx", at("dx.npy"), "--out-dw", at("dw.npy")}),
            0)
      << errors_;
  EXPECT_EQ(read_npy(at("y.npy")).shape(), Shape({0, 3, 4, 5}));
  EXPECT_EQ(read_npy(at("dx.npy")).shape(), Shape({0, 2, 4, 5}));
  const Tensor dw = read_npy(at("dw.npy"));
  EXPECT_TRUE(same_bits(dw, Tensor::zeros({3, 2, 3, 3})));
}

TEST_F(OpDeformCommand, SaysWhatACheckFound) {
  const Words files = {"--mask",   at("mask.npy"), "--dy",        at("dy.npy"),
                       "--out-y",  at("y.npy"),    "--out-dx",    at("dx.npy"),
                       "--out-dw", at("dw.npy"),   "--algorithm", "check:fused,im2col_gemm"};
  ASSERT_EQ(run(files, kSizes), 0) << errors_;
  for (const Direction direction : kDirections) {
    EXPECT_NE(errors_.find(cat("check  ", name_of(direction),
                               ": fused against im2col_gemm, largest difference ")),
              std::string::npos)
        << errors_;
  }
  ASSERT_EQ(
      run({"--mask", at("mask.npy"), "--out-y", at("y.npy"), "--algorithm", "fused,im2col_gemm"},
          kSizes),
      0)
      << errors_;
  EXPECT_NE(errors_.find("forward: fused\n"), std::string::npos) << errors_;
  EXPECT_EQ(errors_.find("check"), std::string::npos) << errors_;
}

TEST_F(OpDeformCommand, AnswersMistakesWithTheirExitCodes) {
  const std::string y = at("y.npy");
  const auto expect = [&](Words words, int code, const std::string& part) {
    words.insert(words.begin(), kSizes.begin(), kSizes.end());
    EXPECT_EQ(run(words), code) << errors_;
    EXPECT_NE(errors_.find(part), std::string::npos) << part << "\n" << errors_;
    EXPECT_EQ(std::ranges::count(errors_, '\n'), 1) << errors_;
    EXPECT_FALSE(std::filesystem::exists(y)) << part;
  };
  expect({}, 2, "expected --out-y, --out-dx, --out-doffset, --out-dmask, --out-dw or --out-db");
  for (const char* out : {"--out-dx", "--out-doffset", "--out-dw", "--out-db"}) {
    expect({out, y}, 2, "expected --dy because a gradient is asked for");
  }
  expect({"--dy", at("dy.npy"), "--out-dmask", y}, 2,
         "expected --mask because --out-dmask asks for its gradient");
  expect({"--out-y", y, "--mask", at("x.npy")}, 2, "expected mask [2,24,5,8] of the type of x");
  expect({"--out-y", y, "--b", at("x.npy")}, 2, "expected b [6] of the type of x");
  expect({"--dy", at("x.npy"), "--out-dw", y}, 2,
         "expected dy [2,6,5,8] of the type of x because that is y");
  expect({"--out-y", y, "--mask", at("absent.npy")}, 6, "absent.npy");
  expect({"--out-y", y, "--algorithm", "fuse"}, 5, "did you mean 'fused'?");
  expect({"--out-y", y, "--algorithm", "check:fused"}, 2, "check:");
  expect({"--out-y", y, "--device", "gpu"}, 2, "expected cpu, cuda or cuda:<index>");
  EXPECT_EQ(run({"--out-y", y, "--padding", "1,2,3"}), 2);
  EXPECT_NE(errors_.find("[op deform_conv2d] expected --padding to be 1 or 2 or 4 whole numbers"),
            std::string::npos)
      << errors_;
  EXPECT_EQ(run({"--out-y", y, "--groups", "2", "--offset-groups", "3"}), 2);
  EXPECT_NE(errors_.find("expected offset groups that divide the input channels, got 3"),
            std::string::npos)
      << errors_;
  EXPECT_EQ(run({"--out-y", y, "--groups", "2"}), 2);  // offset of another size
  EXPECT_NE(errors_.find("expected offset [2,12,7,6] of the type of x because it has (v, u) of 6 "
                         "taps in 1 offset group"),
            std::string::npos)
      << errors_;
  Words sizes = kSizes;
  sizes.back() = "2";
  EXPECT_EQ(run({"--out-y", y}, sizes), 2);
  EXPECT_NE(errors_.find("expected offset [2,24,5,8] "), std::string::npos) << errors_;
  EXPECT_NE(errors_.find("; it fits with --offset-groups 4\n"), std::string::npos) << errors_;
  expect({"--out-y", y, "--mask", at("x.npy")}, 2, "expected mask [2,24,5,8] ");
  sizes = kSizes;
  sizes[3] = "1,2,0,2";
  EXPECT_EQ(run({"--out-y", y}, sizes), 2);
  EXPECT_NE(errors_.find("; --padding, --stride and --dilation say that y is [2,6,5,7]\n"),
            std::string::npos)
      << errors_;
  write_npy(at("offset.npy"), tensors_.offset.to(DType::f64));
  expect({"--out-y", y}, 2, "expected offset [2,48,5,8] of the type of x");
  write_npy(at("x.npy"), Tensor::zeros({2, 8, 9, 7}, DType::i32));
  expect({"--out-y", y}, 2, "expected x of type f32 or f64");
}

}  // namespace
}  // namespace convscope::testing
