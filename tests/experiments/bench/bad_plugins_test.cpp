// SPDX-License-Identifier: Apache-2.0
// bad_plugins_test.cpp: tests that an unsuitable plug-in (plugins/) is refused in one sentence, and
// that wrong answers of a loaded plug-in are detected.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "experiments/bench/conv2d_bench.h"
#include "experiments/bench/peer_check.h"
#include "experiments/bench/peer_library.h"
#include "tests/experiments/program.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/text_of.h"

namespace convscope::testing {
namespace {

const std::string kPlugins = std::string(CONVSCOPE_BINARY_DIR) + "/bad_plugins/";

struct BadPeer {
  const char* mistake;
  const char* sentence;
};

class BadPeers : public ::testing::TestWithParam<BadPeer> {};

TEST_P(BadPeers, AreRefusedWithTheirMistake) {
  setenv("CONVSCOPE_PEER_DIR", (kPlugins + GetParam().mistake).c_str(), 1);
  EXPECT_ERROR(ErrorKind::kUnavailable, GetParam().sentence, open_peer("onednn"));
  unsetenv("CONVSCOPE_PEER_DIR");
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, BadPeers,
    ::testing::Values(BadPeer{"no_entry", "exports no convscope_peer()"},
                      BadPeer{"no_table", "it has no table"},
                      BadPeer{"other_version", "it has version 3 of the interface, not 2"},
                      BadPeer{"no_functions", "it has no name"},
                      BadPeer{"no_variants", "it has no variants"},
                      BadPeer{"many_variants", "it has 2000000000 variants"},
                      BadPeer{"bad_variant", "it has no name for variant 1"},
                      BadPeer{"throws", "ends convscope_peer() with an exception"},
                      BadPeer{"throws_a_number", "ends convscope_peer() with an exception"}),
    [](const auto& peer) { return std::string(peer.param.mistake); });

// ---- during use ---------------------------------------------------------------------------------

const ConvscopePeerVariant kVariants[] = {{"direct", CONVSCOPE_PEER_OWN_LAYOUT, 4}};

// Returns a complete table of plug-in functions. Every answer in the table is wrong, but no call
// crashes.
ConvscopePeer odd_peer() {
  ConvscopePeer peer{};
  peer.abi = CONVSCOPE_PEER_ABI;
  peer.name = "odd";
  peer.version = "1";
  peer.device = "cpu";
  peer.variant_count = 1;
  peer.variants = kVariants;
  peer.set_threads = [](std::int32_t) {};
  peer.create = [](const ConvscopePeerProblem*, std::int32_t, const ConvscopePeerInputs*, char*,
                   std::size_t) {
    static int something = 0;
    return reinterpret_cast<ConvscopePeerCase*>(&something);
  };
  peer.run = [](ConvscopePeerCase*) -> std::int32_t { return 0; };
  peer.read = [](ConvscopePeerCase*, void*) -> std::int32_t { return 0; };
  peer.implementation = [](ConvscopePeerCase*) -> const char* { return nullptr; };
  peer.workspace_bytes = [](ConvscopePeerCase*) { return SIZE_MAX; };
  peer.destroy = [](ConvscopePeerCase*) { throw std::runtime_error("on purpose"); };
  return peer;
}

Conv2dBenchGroup bench_with(const ConvscopePeer& peer) {
  EXPECT_EQ(problem_of_peer(&peer), "");
  Conv2dBenchOptions options;
  options.min_seconds = 1e-5;
  options.least_samples = 1;
  options.peer = &peer;
  return bench_conv2d(options, Conv2dProblem::parse("n=1,c=1,h=3,w=3,k=1,r=3,s=3"),
                      Direction::forward, [](const std::string&) {});
}

TEST(OddPeer, ThatWritesNoResultIsWrong) {
  const auto group = bench_with(odd_peer());
  ASSERT_EQ(group.peer_rows.size(), 1u);
  EXPECT_NE(group.peer_rows[0].wrong, "");
  EXPECT_EQ(group.peer_rows[0].implementation, "");
}

TEST(OddPeer, WhoseReasonDoesNotEndIsCutShort) {
  ConvscopePeer peer = odd_peer();
  peer.create = [](const ConvscopePeerProblem*, std::int32_t, const ConvscopePeerInputs*,
                   char* reason, std::size_t bytes) -> ConvscopePeerCase* {
    std::memset(reason, 'x', bytes);
    return nullptr;
  };
  const auto group = bench_with(peer);
  ASSERT_EQ(group.refusals.size(), 1u);
  EXPECT_EQ(group.refusals[0].reason, std::string(399, 'x'));
}

TEST(OddPeer, WhoseFunctionsThrowIsWrongOrAnError) {
  ConvscopePeer peer = odd_peer();
  peer.run = [](ConvscopePeerCase*) -> std::int32_t { throw std::runtime_error("on purpose"); };
  EXPECT_NE(bench_with(peer).peer_rows.at(0).wrong.find("expected run() of odd to return"),
            std::string::npos);
  peer = odd_peer();
  peer.read = [](ConvscopePeerCase*, void*) -> std::int32_t { throw 7; };
  EXPECT_NE(bench_with(peer).peer_rows.at(0).wrong.find("an unknown type"), std::string::npos);
  peer = odd_peer();
  peer.implementation = [](ConvscopePeerCase*) -> const char* { throw 7; };
  EXPECT_NE(bench_with(peer).peer_rows.at(0).wrong.find("implementation()"), std::string::npos);
  peer = odd_peer();
  peer.create = [](const ConvscopePeerProblem*, std::int32_t, const ConvscopePeerInputs*, char*,
                   std::size_t) -> ConvscopePeerCase* { throw std::runtime_error("on purpose"); };
  EXPECT_ERROR(ErrorKind::kRun, "expected create() of odd to return", bench_with(peer));
  peer = odd_peer();
  peer.set_threads = [](std::int32_t) { throw 7; };
  EXPECT_ERROR(ErrorKind::kRun, "set_threads()", bench_with(peer));
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
      {kPlugins + "no_table/libconvscope_peer_onednn.so", "registered no CUDA backend"}};
  for (const auto& [library, sentence] : cases) {
    int code = -1;
    const std::string said = said_with(library, code);
    EXPECT_EQ(code, 5) << library << "\n" << said;
    EXPECT_NE(said.find(sentence), std::string::npos) << library << "\n" << said;
  }
}

}  // namespace
}  // namespace convscope::testing
