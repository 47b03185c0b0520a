// SPDX-License-Identifier: Apache-2.0
// deform_commands_cuda_test.cpp: tests `bench deform_conv2d` and `op deform_conv2d` with --device
// cuda, and `places` on a run that was trained there.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/cli/cli.h"
#include "framework/io/npy.h"
#include "tests/layers/deform_conv2d/deform_case.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;

class DeformCommandsOnCuda : public CudaTest {
 protected:
  int call(const std::string& line) {
    std::istringstream in("convscope " + line);
    std::vector<std::string> all;
    for (std::string word; in >> word;) all.push_back(word);
    std::vector<char*> arguments;
    for (std::string& word : all) arguments.push_back(word.data());
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    const int code = run_command_line(static_cast<int>(arguments.size()), arguments.data());
    ::testing::internal::GetCapturedStdout();
    errors_ = ::testing::internal::GetCapturedStderr();
    return code;
  }
  std::string at(const std::string& name) const { return folder_ / name; }

  TemporaryFolder folder_;
  std::string errors_;
};

TEST_F(DeformCommandsOnCuda, BenchChecksAndTimesEachPrecision) {
  for (const std::string precision : {"f32", "tf32", "bf16", "f16"}) {
    ASSERT_EQ(call("bench deform_conv2d --device cuda --problem c=8,h=9,w=7,k=6,r=3,s=3,pad=1 "
                   "--min-time 0.0001 --rounds 1 --batch 3 --precision " +
                   precision + " --algorithm im2col_gemm,fused_lesson --json " + at("b.json")),
              0)
        << errors_;
    const Json all = Json::parse(std::ifstream(at("b.json")));
    ASSERT_EQ(all.at("rows").size(), 6u);
    for (const Json& row : all.at("rows")) {
      EXPECT_EQ(row.at("status"), "ok") << precision;
      EXPECT_TRUE(row.at("problem").get<std::string>().starts_with("n=3,"));
      EXPECT_LE(row.at("error_ratio").get<double>(), 1);
    }
  }
}

TEST_F(DeformCommandsOnCuda, OpWritesWhatTheCpuComputes) {
  const auto z = DeformConv2dProblem::parse("n=2,c=4,h=9,w=7,k=6,r=3,s=3,pad=1,offset_groups=2");
  const DeformConv2dTensors t = deform_tensors(z, matrix::Tier::bounded);
  std::string line = "op deform_conv2d --padding 1 --offset-groups 2";
  const std::pair<const char*, Tensor> inputs[] = {
      {"x", t.x}, {"offset", t.offset}, {"mask", t.mask}, {"w", t.w}, {"b", t.b}, {"dy", t.dy}};
  for (const auto& [name, values] : inputs) {
    write_npy(at(cat(name, ".npy")), values);
    line += cat(" --", name, " ", at(cat(name, ".npy")));
  }
  const char* const outputs[] = {"y", "dx", "doffset", "dmask", "dw", "db"};
  for (const std::string device : {"cpu", "cuda"}) {
    std::string here = cat(line, " --device ", device);
    for (const char* name : outputs) here += cat(" --out-", name, " ", at(cat(device, name)));
    ASSERT_EQ(call(here), 0) << errors_;
  }
  for (const char* name : outputs) {
    EXPECT_TRUE(near(read_npy(at(cat("cuda", name))), read_npy(at(cat("cpu", name))), 1e-4, 1e-4))
        << name;
  }
}

TEST_F(DeformCommandsOnCuda, PlacesOfARunAreDrawn) {
  std::ofstream(at("small.yaml"))
      << "name: small\ndevice: cuda\n"
         "data: {set: synthetic_digits, train_size: 32, test_size: 20, batch_size: 16}\n"
         "layers:\n"
         "  - {type: max_pool2d, kernel_size: 2}\n"
         "  - {type: deform_conv2d, name: d, out_channels: 2, kernel_size: 3, stride: 2}\n"
         "  - {type: flatten}\n  - {type: linear, name: f, out_features: 10}\n"
         "optim: {type: sgd, lr: 0.01}\ntrain: {epochs: 1}\n";
  ASSERT_EQ(call(cat("run ", at("small.yaml"), " -o ", at("runs"))), 0) << errors_;
  EXPECT_EQ(call(cat("places ", at("runs/small"), " -n 2 -o ", at("p.svg"))), 0) << errors_;
  EXPECT_TRUE(std::ifstream(at("p.svg")).good());
}

}  // namespace
}  // namespace convscope::testing
