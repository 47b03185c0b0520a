// SPDX-License-Identifier: Apache-2.0
// outputs_test.cpp: tests that the program reports an unwritable output before it starts to work.
// In these cases the work would fail as well. The reported error therefore shows whether the output
// was checked first.
#include <gtest/gtest.h>

#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/run_here.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

TEST(Outputs, AreCheckedBeforeTheWork) {
  const TemporaryFolder root;
  const std::string run = write_run(root.path() + "/runs", {});  // has no checkpoint
  write_text(root.path() + "/file", "no folder");
  const std::string none = root.path() + "/none/", below_file = root.path() + "/file/runs";
  const std::vector<std::vector<std::string>> calls = {
      {"run", "mnist_lenet5_baseline", "data.root=" + none, "-o", below_file},
      {"export", run, "--onnx", none + "a.onnx"},
      {"export", run, "--compact", none + "a.safetensors"},
      {"look", "gemm_1x1", "--problem", "c=2,h=5,w=5,k=2,r=3,s=3", "-o", none + "a.html"},
      {"plot", root.path() + "/no_run", "-o", below_file},
      {"report", root.path() + "/no_run", "-o", none + "a.md"},
      {"compare", root.path() + "/no_run", run, "-o", none + "a.md"},
      {"data", "synth", "--root", below_file}};
  for (const auto& words : calls) {
    const Output out = run_here(words);
    EXPECT_EQ(out.code, 6) << words[0] << ": " << out.err;
    const bool names = out.err.find(none) != std::string::npos ||
                       out.err.find(root.path() + "/file: Not a directory") != std::string::npos;
    EXPECT_TRUE(names) << words[0] << ": " << out.err;
    EXPECT_EQ(out.err.find("no_run"), std::string::npos) << words[0] << ": " << out.err;
  }
  EXPECT_EQ(text_of(root.path() + "/file"), "no folder");
}

}  // namespace
}  // namespace convscope::testing
