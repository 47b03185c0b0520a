// SPDX-License-Identifier: Apache-2.0
// op_net_test.cpp: `convscope op net` on files: results, exit codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "experiments/config/build.h"
#include "framework/io/npy.h"
#include "framework/io/safetensors.h"
#include "layers/losses/cross_entropy.h"
#include "tests/experiments/cli/op_files.h"
#include "tests/support/numbers.h"

namespace convscope {
namespace {

const std::string kConfig =
    "name: small\n"
    "data: {set: cifar10, root: /nowhere}\n"
    "layers:\n"
    "  - {type: residual, name: block, out_channels: 6, stride: 2}\n"
    "  - {type: flatten}\n"
    "  - {type: linear, name: f1, out_features: 10}\n"
    "optim: {type: sgd, lr: 0.1}\n";

class OpNetCommand : public testing::OpFiles {
 protected:
  void SetUp() override {
    std::ofstream(at("net.yaml")) << kConfig;
    write_npy(at("x.npy"), x_);
    write_npy(at("labels.npy"), labels_);
  }

  // Returns the exit code of `convscope op net net.yaml --x x.npy <more>`.
  int run(const Words& more) { return call_op({"net", at("net.yaml"), "--x", at("x.npy")}, more); }

  const Tensor x_ = testing::normal({3, 2, 6, 6}, DType::f32, 1);
  const Tensor labels_ = Tensor::zeros({3}, DType::i32);
};

TEST_F(OpNetCommand, WritesOutputsGradientsAndMovedStatistics) {
  ASSERT_EQ(run({"--labels", at("labels.npy"), "--mode", "train", "--out-y", at("y.npy"),
                 "--out-dx", at("dx.npy"), "--out-gradients", at("g.safetensors"), "--out-weights",
                 at("w.safetensors")}),
            0)
      << errors_;
  const ExperimentConfig config = parse_config_text(kConfig, "net.yaml");
  const auto network = build_model(config, {2, 6, 6}, 10);
  const Variable x(x_, true);
  const Variable y = network->forward(x);
  softmax_cross_entropy(y, labels_).backward();
  EXPECT_TRUE(testing::same_bits(read_npy(at("y.npy")), y.value()));
  EXPECT_TRUE(testing::same_bits(read_npy(at("dx.npy")), x.grad()));
  EXPECT_EQ(output_.substr(0, 5), "loss ");
  const SafetensorsFile gradients = read_safetensors(at("g.safetensors"));
  const SafetensorsFile weights = read_safetensors(at("w.safetensors"));
  EXPECT_EQ(gradients.tensors.size(), network->parameters().size());
  for (const NamedParameter& p : network->parameters()) {
    ASSERT_NE(gradients.find(p.name), nullptr) << p.name;
    EXPECT_TRUE(testing::same_bits(*gradients.find(p.name), p.variable.grad())) << p.name;
    EXPECT_TRUE(testing::same_bits(*weights.find(p.name), p.variable.value())) << p.name;
  }
  for (const NamedTensor& buffer : network->buffers()) {
    EXPECT_TRUE(testing::same_bits(*weights.find(buffer.name), buffer.tensor)) << buffer.name;
  }
}

TEST_F(OpNetCommand, TakesWeightsFromAFile) {
  ASSERT_EQ(run({"--out-weights", at("w.safetensors"), "--out-y", at("first.npy")}), 0) << errors_;
  ASSERT_EQ(run({"seed=99", "--out-y", at("other.npy")}), 0) << errors_;
  ASSERT_EQ(run({"seed=99", "--weights", at("w.safetensors"), "--out-y", at("again.npy")}), 0)
      << errors_;
  EXPECT_FALSE(testing::same_bits(read_npy(at("other.npy")), read_npy(at("first.npy"))));
  EXPECT_TRUE(testing::same_bits(read_npy(at("again.npy")), read_npy(at("first.npy"))));
}

TEST_F(OpNetCommand, AnswersMistakesWithTheirExitCodes) {
  const std::string y = at("y.npy");
  EXPECT_EQ(run({}), 2);
  EXPECT_NE(errors_.find("got none"), std::string::npos);
  EXPECT_EQ(run({"--out-gradients", y}), 2);
  EXPECT_NE(errors_.find("expected --labels because a gradient is asked for"), std::string::npos);
  EXPECT_EQ(run({"--mode", "test", "--out-y", y}), 2);
  EXPECT_EQ(run({"--classes", "7", "--out-y", y}), 3);  // the linear layer has 10
  EXPECT_EQ(run({"layers=3", "--out-y", y}), 3);
  EXPECT_EQ(run({"--labels", at("x.npy"), "--out-y", y}), 2);
  EXPECT_NE(errors_.find("expected labels [N] of type i32"), std::string::npos);
  EXPECT_EQ(run({"--weights", at("absent.safetensors"), "--out-y", y}), 6);
  write_safetensors(at("w.safetensors"), {{"f1.bias", Tensor::zeros({10})}});
  EXPECT_EQ(run({"--weights", at("w.safetensors"), "--out-y", y}), 6);
  EXPECT_NE(errors_.find("expected 'block.conv1.weight'"), std::string::npos) << errors_;
}

}  // namespace
}  // namespace convscope
