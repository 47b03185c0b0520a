// SPDX-License-Identifier: Apache-2.0
// kept_choices_test.cpp: tests that a resumed run uses the same algorithms, even if the measured
// peaks of the machine have changed.
#include "experiments/trainer/choices/kept_choices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "experiments/run_folder/run_folder.h"
#include "framework/io/atomic_file.h"
#include "framework/machine/peaks.h"
#include "layers/dispatch/measure.h"
#include "tests/support/cache_folder.h"
#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::TemporaryFolder;
using testing::text_of;
using Json = nlohmann::json;

class KeptMeasurements : public ::testing::Test {
 protected:
  void SetUp() override {
    write_file(root / "c.yaml",
               "name: small\nthreads: 1\n"
               "data: {set: synthetic_digits, train_size: 64, test_size: 32, batch_size: 32}\n"
               "layers: [{type: conv2d, name: c1, out_channels: 4, kernel_size: 3}, "
               "{type: flatten}, {type: linear, out_features: 10}]\n"
               "conv: {algorithm: measure}\ntrain: {epochs: 3}\n");
  }
  void call(const std::string& words) const {
    const auto done =
        call_program("run " + words + " -q", root.path(), "CONVSCOPE_CACHE_DIR='" + cache + "'");
    EXPECT_EQ(done.code, 0) << done.err;
  }
  // Makes `auto` choose another algorithm for each problem from now on.
  void exchange_answers() const {
    Json content = Json::parse(text_of(cache + "/conv2d_cpu.json"));
    for (auto& [key, name] : content["fastest"].items()) {
      name = name == "im2col_gemm" ? "im2col_gemm_eigen" : "im2col_gemm";
    }
    write_file(cache + "/conv2d_cpu.json", content.dump());
  }
  // Returns "c1,conv2d,...,<forward>,<backward_data>,<backward_weight>,<step>" without times.
  static std::string kernels_of(const std::string& run) {
    const std::string text = text_of(run + "/layers.csv");
    const std::size_t begin = text.find("\nc1,");
    return text.substr(begin, text.find(",planned", begin) - begin);
  }
  TemporaryFolder root;
  const std::string cache = root / "cache";
};

TEST_F(KeptMeasurements, AreThoseOfTheRunThatGoesOn) {
  call("c.yaml --epochs-limit 1");
  const std::string run = resolve_run(root / "runs/small");
  const std::string before = kernels_of(run);
  EXPECT_NE(before.find("c1,conv2d"), std::string::npos) << text_of(run + "/layers.csv");
  const Json chosen = Json::parse(text_of(run + "/choices.json")).at("measured");
  EXPECT_FALSE(chosen.empty());
  exchange_answers();
  call("c.yaml --name other --epochs-limit 1");
  EXPECT_NE(kernels_of(resolve_run(root / "runs/other")), before);  // the test would notice
  call("--resume " + run + " --epochs-limit 2");
  EXPECT_EQ(kernels_of(run), before);
  EXPECT_EQ(Json::parse(text_of(run + "/choices.json")).at("measured"), chosen);
  std::filesystem::remove_all(cache);
  call("--resume " + run);
  EXPECT_EQ(kernels_of(run), before);
  EXPECT_EQ(Json::parse(text_of(run + "/choices.json")).at("measured"), chosen);
  EXPECT_EQ(read_run_status(run).state, "DONE");
}

TEST(KeptChoices, HoldThePeaksToo) {
  const testing::CacheFolder cache;
  const TemporaryFolder root;
  const MachinePeaks began{.flops_per_second = 3e11, .bytes_per_second = 7e9};
  set_machine_peaks(began);
  KeptChoices(Device{}).write(root.path());
  set_machine_peaks({.flops_per_second = 1e12, .bytes_per_second = 1e9});
  KeptChoices::take_over(root.path());
  EXPECT_EQ(machine_peaks().flops_per_second, 3e11);
  EXPECT_EQ(machine_peaks().bytes_per_second, 7e9);
  set_machine_peaks({});
}

// Runs of earlier versions have no int8 peak.
TEST(KeptChoices, HoldThePeakOfBytesIfTheyKnowIt) {
  const testing::CacheFolder cache;
  const TemporaryFolder root;
  set_machine_peaks(
      {.flops_per_second = 3e11, .bytes_per_second = 7e9, .int8_flops_per_second = 9e11});
  KeptChoices(Device{}).write(root.path());
  set_machine_peaks({});
  KeptChoices::take_over(root.path());
  EXPECT_EQ(machine_peaks().int8_flops_per_second, 9e11);
  Json content = Json::parse(text_of(root / "choices.json"));
  content["peaks"].erase("int8_flops_per_second");
  write_file(root / "choices.json", content.dump());
  KeptChoices::take_over(root.path());
  EXPECT_EQ(machine_peaks().flops_per_second, 3e11);
  EXPECT_EQ(machine_peaks().int8_flops_per_second, 0);
  set_machine_peaks({});
}

TEST(KeptChoices, OfAnOlderVersionAreTakenOver) {
  const testing::CacheFolder cache;
  const TemporaryFolder root;
  set_machine_peaks({.flops_per_second = 3e11, .bytes_per_second = 7e9});
  KeptChoices(Device{}).write(root.path());
  set_machine_peaks({});
  std::string text = text_of(root / "choices.json");
  const std::size_t at = text.find("\"peaks\"");
  ASSERT_NE(at, std::string::npos) << text;
  write_file(root / "choices.json", text.replace(at, 7, "\"ceilings\""));
  KeptChoices::take_over(root.path());
  EXPECT_EQ(machine_peaks().flops_per_second, 3e11);
  set_machine_peaks({});
}

TEST(KeptChoices, ADamagedFileIsAnErrorThatSaysWhatToDo) {
  const TemporaryFolder root;
  KeptChoices::take_over(root.path());  // a run of an earlier version
  for (const char* text : {"", "[]", "{\"format\": \"convscope choices 1\", \"measured\": 3}"}) {
    write_file(root / "choices.json", text);
    EXPECT_ERROR(ErrorKind::kIo, "without this file the run continues",
                 KeptChoices::take_over(root.path()));
  }
}

}  // namespace
}  // namespace convscope
