// SPDX-License-Identifier: Apache-2.0
// sparse_commands_cuda_test.cpp: tests `bench sparse_conv`, `bench sparse_net` and `op sparse_conv`
// with --device cuda: checks, times and output files. A build without CUDA algorithms must refuse.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/bench/bench_rows.h"
#include "experiments/cli/cli.h"
#include "framework/io/npy.h"
#include "tests/layers/sparse_conv/sparse_case.h"
#include "tests/support/cuda.h"
#include "tests/support/numbers.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using Json = nlohmann::json;

class SparseCommandsOnCuda : public CudaTest {
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
  // If the build has no CUDA algorithm, expects exit code 5 and an error sentence, and returns
  // true.
  bool has_none(const std::string& line) {
    if (!sparse_conv_algorithms(DeviceType::cuda).names().empty()) return false;
    EXPECT_EQ(call(line), 5) << errors_;
    EXPECT_NE(errors_.find("error: "), std::string::npos) << errors_;
    return true;
  }

  // Returns whether an algorithm accepts half precision, or TF32.
  static bool takes(ComputePrecision precision) {
    SparseConvProblem z = problem_of(kSparseCases[0]);
    z.dtype = factor_type(precision);
    z.math = math_mode(precision);
    return std::ranges::any_of(kDirections, [&](Direction direction) {
      return auto_choice_of(z, direction, Device::parse("cuda"), WeightUse::once) != nullptr;
    });
  }

  TemporaryFolder folder_;
  std::string errors_;
};

TEST_F(SparseCommandsOnCuda, BenchChecksAndTimesEachPrecision) {
  const std::string line =
      "bench sparse_conv --device cuda --problem cloud=shell,sites=300,seed=1,kernel=3x3x3,c=8,"
      "k=16 --min-time 0.0001 --rounds 1 --json " +
      at("b.json") + " --precision ";
  if (has_none(line + "f32")) return;
  for (const ComputePrecision precision : kComputePrecisions) {
    const int code = call(cat(line, name_of(precision)));
    if (!takes(precision)) {
      EXPECT_EQ(code, 5) << errors_;
      continue;
    }
    ASSERT_EQ(code, 0) << errors_;
    const Json all = Json::parse(std::ifstream(at("b.json")));
    EXPECT_FALSE(all.at("rows").empty()) << name_of(precision);
    for (const Json& row : all.at("rows")) {
      EXPECT_EQ(row.at("status"), "ok") << row.dump();
      EXPECT_EQ(row.at("sites"), 300);
    }
  }
}

TEST_F(SparseCommandsOnCuda, BenchNetTimesBothPrecisions) {
  const std::string line =
      "bench sparse_net --device cuda --voxels 200 --channels 8,16,16 --precision f32,f16 "
      "--min-time 0.0001 --rounds 1 --json " +
      at("n.json");
  if (has_none(line)) return;
  ASSERT_EQ(call(line), 0) << errors_;
  for (const Json& row : Json::parse(std::ifstream(at("n.json"))).at("rows")) {
    if (row.at("direction") == "map") continue;
    EXPECT_EQ(row.at("status"), "ok") << row.dump();
    EXPECT_GT(row.at("samples"), 0) << row.dump();
  }
}

TEST_F(SparseCommandsOnCuda, OpWritesWhatTheCpuComputes) {
  const SparseCase& of = *std::ranges::find_if(
      kSparseCases, [](const SparseCase& one) { return std::string(one.name) == "volume"; });
  const SparseConvProblem z = problem_of(of);
  const SparseConvTensors t = sparse_tensors(z, /*integers=*/true);
  std::string line = cat("op sparse_conv --submanifold --sites ", at("sites.npy"));
  write_npy(at("sites.npy"), z.map->in_sites()->coordinates());
  const std::pair<const char*, Tensor> inputs[] = {
      {"x", t.x}, {"w", t.w}, {"b", t.b}, {"dy", t.dy}};
  for (const auto& [name, values] : inputs) {
    write_npy(at(cat(name, ".npy")), values);
    line += cat(" --", name, " ", at(cat(name, ".npy")));
  }
  if (has_none(cat(line, " --device cuda --out-y ", at("y.npy")))) {
    EXPECT_NE(errors_.find("there is no algorithm of sparse convolution for cuda in this build"),
              std::string::npos)
        << errors_;
    return;
  }
  const char* const outputs[] = {"y", "dx", "dw", "db"};
  for (const std::string device : {"cpu", "cuda"}) {
    std::string here = cat(line, " --repeats 1 --device ", device);
    for (const char* name : outputs) here += cat(" --out-", name, " ", at(cat(device, name)));
    ASSERT_EQ(call(here), 0) << errors_;
  }
  for (const char* name : outputs) {  // sums of small integers
    EXPECT_TRUE(near(read_npy(at(cat("cuda", name))), read_npy(at(cat("cpu", name))), 1e-5, 1e-5))
        << name;
  }
  if (!takes(ComputePrecision::f16)) return;
  // The operands are exact in half precision, so only the results are rounded. The output files
  // stay f32.
  ASSERT_EQ(call(cat(line, " --device cuda --precision f16 --out-y ", at("half"))), 0) << errors_;
  EXPECT_EQ(read_npy(at("half")).dtype(), DType::f32);
  EXPECT_TRUE(near(read_npy(at("half")), read_npy(at("cpuy")), 1e-3, 0.5));
}

}  // namespace
}  // namespace convscope::testing
