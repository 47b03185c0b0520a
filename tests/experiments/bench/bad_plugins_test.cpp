// SPDX-License-Identifier: Apache-2.0
// bad_plugins_test.cpp: tests that an unsuitable plug-in (plugins/) is refused in one sentence, and
// that wrong answers of a loaded plug-in are detected.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "experiments/bench/baseline_check.h"
#include "experiments/bench/baseline_library.h"
#include "experiments/bench/conv2d_bench.h"
#include "tests/experiments/program.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope::testing {
namespace {

const std::string kPlugins = std::string(CONVSCOPE_BINARY_DIR) + "/bad_plugins/";

struct BadBaseline {
  const char* mistake;
  const char* sentence;
};

class BadBaselines : public ::testing::TestWithParam<BadBaseline> {};

TEST_P(BadBaselines, AreRefusedWithTheirMistake) {
  setenv("CONVSCOPE_BASELINE_DIR", (kPlugins + GetParam().mistake).c_str(), 1);
  EXPECT_ERROR(ErrorKind::kUnavailable, GetParam().sentence, open_baseline("onednn"));
  unsetenv("CONVSCOPE_BASELINE_DIR");
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, BadBaselines,
    ::testing::Values(BadBaseline{"no_entry", "exports no convscope_baseline()"},
                      BadBaseline{"no_table", "it has no table"},
                      BadBaseline{"other_version", "it has version 3 of the interface, not 2"},
                      BadBaseline{"no_functions", "it has no name"},
                      BadBaseline{"no_variants", "it has no variants"},
                      BadBaseline{"many_variants", "it has 2000000000 variants"},
                      BadBaseline{"bad_variant", "it has no name for variant 1"},
                      BadBaseline{"throws", "ends convscope_baseline() with an exception"},
                      BadBaseline{"throws_a_number",
                                  "ends convscope_baseline() with an exception"}),
    [](const auto& baseline) { return std::string(baseline.param.mistake); });

// ---- during use ---------------------------------------------------------------------------------

const ConvscopeBaselineVariant kVariants[] = {{"direct", CONVSCOPE_BASELINE_OWN_LAYOUT, 4}};

// Returns a complete table of plug-in functions. Each function returns a wrong result, but none
// crashes.
ConvscopeBaseline odd_baseline() {
  ConvscopeBaseline baseline{};
  baseline.abi = CONVSCOPE_BASELINE_ABI;
  baseline.name = "odd";
  baseline.version = "1";
  baseline.device = "cpu";
  baseline.variant_count = 1;
  baseline.variants = kVariants;
  baseline.set_threads = [](std::int32_t) {};
  baseline.create = [](const ConvscopeBaselineProblem*, std::int32_t,
                       const ConvscopeBaselineInputs*, char*, std::size_t) {
    static int something = 0;
    return reinterpret_cast<ConvscopeBaselineCase*>(&something);
  };
  baseline.run = [](ConvscopeBaselineCase*) -> std::int32_t { return 0; };
  baseline.read = [](ConvscopeBaselineCase*, void*) -> std::int32_t { return 0; };
  baseline.implementation = [](ConvscopeBaselineCase*) -> const char* { return nullptr; };
  baseline.workspace_bytes = [](ConvscopeBaselineCase*) { return SIZE_MAX; };
  baseline.destroy = [](ConvscopeBaselineCase*) { throw std::runtime_error("on purpose"); };
  return baseline;
}

Conv2dBenchGroup bench_with(const ConvscopeBaseline& baseline) {
  EXPECT_EQ(problem_of_baseline(&baseline), "");
  Conv2dBenchOptions options;
  options.min_seconds = 1e-5;
  options.least_samples = 1;
  options.baseline = &baseline;
  return bench_conv2d(options, Conv2dProblem::parse("n=1,c=1,h=3,w=3,k=1,r=3,s=3"),
                      Direction::forward, [](const std::string&) {});
}

TEST(OddBaseline, ThatWritesNoResultIsWrong) {
  const auto group = bench_with(odd_baseline());
  ASSERT_EQ(group.baseline_rows.size(), 1u);
  EXPECT_NE(group.baseline_rows[0].wrong, "");
  EXPECT_EQ(group.baseline_rows[0].implementation, "");
}

TEST(OddBaseline, WhoseReasonDoesNotEndIsCutShort) {
  ConvscopeBaseline baseline = odd_baseline();
  baseline.create = [](const ConvscopeBaselineProblem*, std::int32_t,
                       const ConvscopeBaselineInputs*, char* reason,
                       std::size_t bytes) -> ConvscopeBaselineCase* {
    std::memset(reason, 'x', bytes);
    return nullptr;
  };
  const auto group = bench_with(baseline);
  ASSERT_EQ(group.refusals.size(), 1u);
  EXPECT_EQ(group.refusals[0].reason, std::string(399, 'x'));
}

TEST(OddBaseline, WhoseFunctionsThrowIsWrongOrAnError) {
  ConvscopeBaseline baseline = odd_baseline();
  baseline.run = [](ConvscopeBaselineCase*) -> std::int32_t {
    throw std::runtime_error("on purpose");
  };
  EXPECT_NE(bench_with(baseline).baseline_rows.at(0).wrong.find("expected run() of odd to return"),
            std::string::npos);
  baseline = odd_baseline();
  baseline.read = [](ConvscopeBaselineCase*, void*) -> std::int32_t { throw 7; };
  EXPECT_NE(bench_with(baseline).baseline_rows.at(0).wrong.find("an unknown type"),
            std::string::npos);
  baseline = odd_baseline();
  baseline.implementation = [](ConvscopeBaselineCase*) -> const char* { throw 7; };
  EXPECT_NE(bench_with(baseline).baseline_rows.at(0).wrong.find("implementation()"),
            std::string::npos);
  baseline = odd_baseline();
  baseline.create =
      [](const ConvscopeBaselineProblem*, std::int32_t, const ConvscopeBaselineInputs*, char*,
         std::size_t) -> ConvscopeBaselineCase* { throw std::runtime_error("on purpose"); };
  EXPECT_ERROR(ErrorKind::kRun, "expected create() of odd to return", bench_with(baseline));
  baseline = odd_baseline();
  baseline.set_threads = [](std::int32_t) { throw 7; };
  EXPECT_ERROR(ErrorKind::kRun, "set_threads()", bench_with(baseline));
}

// ---- instead of the CUDA library ----------------------------------------------------------------

// Returns exit code and stderr of `convscope explain CONFIG device=cuda` with that library.
std::string said_with(const std::string& library, int& code) {
  const TemporaryFolder folder;
  setenv("CONVSCOPE_CUDA_LIBRARY", library.c_str(), 1);
  Program program({kProgram, "explain", CONVSCOPE_SOURCE_DIR "/experiments/configs/quickstart.yaml",
                   "device=cuda"},
                  folder / "said");
  code = program.wait();
  unsetenv("CONVSCOPE_CUDA_LIBRARY");
  return text_of(folder / "said.err");
}

TEST(BadCudaLibrary, IsNoDevice) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text.so") << "no library";
  const std::pair<std::string, const char*> cases[] = {
      {folder / "absent.so", "no CUDA library"},
      {folder / "text.so", "could not be opened"},
      {folder.path(), "could not be opened"},
      {kPlugins + "bad_backend_registers_nothing.so", "registered no CUDA backend"},
      {kPlugins + "bad_backend_no_table.so", "that is not complete"},
      {kPlugins + "bad_backend_half_a_table.so", "that is not complete"},
      {kPlugins + "no_table/libconvscope_baseline_onednn.so", "registered no CUDA backend"}};
  for (const auto& [library, sentence] : cases) {
    int code = -1;
    const std::string said = said_with(library, code);
    EXPECT_EQ(code, 5) << library << "\n" << said;
    EXPECT_NE(said.find(sentence), std::string::npos) << library << "\n" << said;
  }
}

}  // namespace
}  // namespace convscope::testing
