// SPDX-License-Identifier: Apache-2.0
// bad_plugin_files_test.cpp: a file that is no plug-in of this program, or holds a card of no use,
// is refused in one sentence with exit code 5, and nothing crashes.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "layers/conv2d/plugin.h"
#include "layers/dispatch/plugin/plugin_file.h"
#include "tests/experiments/plugins/plugin_paths.h"
#include "tests/support/call_program.h"

namespace convscope::testing {
namespace {

void expect_refused(const std::string& file, const std::string& sentence,
                    const std::string& environment = "") {
  const Called called = call_program("info --plugin '" + file + "'", "", environment);
  EXPECT_EQ(called.code, 5) << called.err;
  EXPECT_NE(called.err.find(sentence), std::string::npos) << called.err;
  EXPECT_NE(called.err.find("[plugin] expected a plug-in in "), std::string::npos) << called.err;
  EXPECT_EQ(std::count(called.err.begin(), called.err.end(), '\n'), 1) << called.err;
  EXPECT_EQ(called.out, "");
}

// ---- files -------------------------------------------------------------------------------------

TEST(BadPluginFile, ThatIsNoneIsRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder / "text.so") << "no library";
  std::ofstream(folder / "empty.so");
  std::ofstream(folder / "cut.so") << "\177ELF";
  std::filesystem::create_directory(folder / "nothing");
  expect_refused(folder / "absent.so", "it does not exist");
  expect_refused(folder / "text.so", "it is no shared library");
  expect_refused(folder / "empty.so", "it is no shared library");
  expect_refused(folder / "cut.so", "it holds none");
  expect_refused(folder / "nothing", "it is a folder without a file *.so");
  expect_refused("/dev/zero", "it is no file");
  const std::string program = std::string(CONVSCOPE_BINARY_DIR) + "/bin/convscope";
  expect_refused(program, "it holds none");
}

// A copy of a good plug-in with other bytes at one place.
std::string changed(const TemporaryFolder& folder, std::size_t offset_in_facts,
                    std::int32_t value) {
  std::string bytes = text_of(kPlanted);
  const std::size_t at = bytes.find(std::string(kPluginMark));
  EXPECT_NE(at, std::string::npos);
  std::memcpy(bytes.data() + at + offset_in_facts, &value, sizeof value);
  std::ofstream(folder / "changed.so", std::ios::binary) << bytes;
  return folder / "changed.so";
}

TEST(BadPluginFile, OfAnotherVersionIsRefusedBeforeAnythingOfItRuns) {
  const TemporaryFolder folder;
  constexpr std::int32_t kNext = kPluginInterface + 1;
  expect_refused(changed(folder, offsetof(PluginFacts, interface), kNext),
                 cat("it was built for interface ", kNext, " of plug-ins, and this program has ",
                     kPluginInterface, ": build it again"));
  expect_refused(changed(folder, offsetof(PluginFacts, library), '9'),
                 "it was built for convscope 9, and this is 0.1: build it again");
  expect_refused(changed(folder, offsetof(PluginFacts, operation), 'p'),
                 "it holds algorithms of 'p', not of conv2d");
  expect_refused(changed(folder, offsetof(PluginFacts, card_bytes), 8), "a card has 8 bytes there");
  expect_refused(changed(folder, offsetof(PluginFacts, problem_bytes), 8),
                 "a problem has 8 bytes there");
  expect_refused(changed(folder, offsetof(PluginFacts, bytes), 1), "its facts have 1 bytes there");
  expect_refused(changed(folder, offsetof(PluginFacts, pointer_bytes), 4),
                 "a pointer has 4 bytes there and 8 here");
  expect_refused(changed(folder, offsetof(PluginFacts, cxx11_abi), 0), "_GLIBCXX_USE_CXX11_ABI=0");
  expect_refused(changed(folder, offsetof(PluginFacts, layout), 1),
                 "built with structs whose members stand elsewhere");
}

TEST(BadPluginFile, WithoutItsFunctionIsRefused) {
  const TemporaryFolder folder;
  std::string bytes = text_of(kPlanted);
  const std::string name = kConv2dPluginEntry;
  for (std::size_t at = 0; (at = bytes.find(name, at)) != std::string::npos;) bytes[at] = 'X';
  std::ofstream(folder / "mute.so", std::ios::binary) << bytes;
#if defined(__SANITIZE_ADDRESS__)
  // A sanitizer's data name the function too, and the system misses it before the program does.
  expect_refused(folder / "mute.so", "undefined symbol: X");
#else
  expect_refused(folder / "mute.so", "it exports no convscope_conv2d_plugin()");
#endif
}

// What lies at the end is not loaded; where more is missing, the system may end who loads it.
TEST(BadPluginFile, CutAnywhereIsRefusedOrWhole) {
  const TemporaryFolder folder;
  const std::string bytes = text_of(kPlanted);
  int refused = 0;
  for (int part = 1; part < 16; ++part) {
    const std::size_t count = bytes.size() * static_cast<std::size_t>(part) / 16;
    std::ofstream(folder / "cut.so", std::ios::binary) << bytes.substr(0, count);
    const Called called = call_program("info --plugin '" + (folder / "cut.so") + "'");
    if (called.code == 0) continue;
    ++refused;
    EXPECT_EQ(called.code, 5) << part << ": " << called.err;
    EXPECT_EQ(std::count(called.err.begin(), called.err.end(), '\n'), 1) << called.err;
  }
  EXPECT_GT(refused, 5);
}

TEST(PluginFacts, AreFoundInBytesAndNothingIsReadBehindThem) {
  const PluginFacts facts = conv2d_plugin_facts();
  std::string bytes = "in front";
  bytes.append(reinterpret_cast<const char*>(&facts), sizeof facts);
  const auto read = [](const std::string& text) {
    return facts_in({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  ASSERT_TRUE(read(bytes));
  EXPECT_EQ(*read(bytes), facts);
  EXPECT_EQ(misfit_of(*read(bytes), facts), "");
  for (std::size_t count = 0; count < bytes.size(); ++count) {
    EXPECT_FALSE(read(bytes.substr(0, count))) << count;
  }
}

// ---- cards -------------------------------------------------------------------------------------

struct OddCard {
  const char* mistake;
  const char* sentence;
};

class OddPlugin : public ::testing::TestWithParam<OddCard> {};

TEST_P(OddPlugin, IsRefusedWithItsMistake) {
  expect_refused(kOdd, GetParam().sentence,
                 std::string("CONVSCOPE_ODD_PLUGIN=") + GetParam().mistake);
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, OddPlugin,
    ::testing::Values(
        OddCard{"throws", "ends convscope_conv2d_plugin() with an exception: on purpose"},
        OddCard{"throws_a_number", "ends convscope_conv2d_plugin() with an exception"},
        OddCard{"null_name", "holds a card that has no name"},
        OddCard{"bad_name", "is named 'No Name': expected a name of at most 40 small letters"},
        OddCard{"policy_name", "is named 'auto': expected another name"},
        OddCard{"taken_name", "has a name that is taken: "}, OddCard{"no_idea", "has no idea"},
        OddCard{"no_supports", "has no function supports"},
        OddCard{"no_cost", "has no function cost"},
        OddCard{"no_workspace_bytes", "has no function workspace_bytes"},
        OddCard{"no_direction", "has no direction"}, OddCard{"cuda", "is not of the CPU"},
        OddCard{"growth", "has the error_growth 0"},
        OddCard{"half_prepared", "has no function prepare_weights beside prepared_bytes"},
        OddCard{"supports_throws", "its supports() throws an exception (on purpose)"},
        OddCard{"supports_crashes",
                "it ends the process by signal 11 (Segmentation fault) when supports(), cost() or "
                "workspace_bytes() of the card 'odd' is asked"},
        OddCard{"supports_exits", "it ends the process with status 3"},
        OddCard{"no_reason", "its supports() answers no without a sentence"},
        OddCard{"free", "its cost() answers flops = 0"},
        OddCard{"huge", "its workspace_bytes() answers 18446744073709551615 bytes"},
        OddCard{"ladder_name", "there is a ladder 'winograd' already"},
        OddCard{"ladder_card", "has a rung 'nobody', and no algorithm is named so"},
        OddCard{"ladder_problem", "has a problem that is none"},
        OddCard{"ladder_isa", "has a rung with no instruction set"},
        OddCard{"ladder_rungs", "has fewer than two rungs"}),
    [](const auto& odd) { return std::string(odd.param.mistake); });

TEST(OddPlugin, WithoutAMistakeIsTaken) {
  const Called called = call_program("info --plugin '" + kOdd + "'");
  EXPECT_EQ(called.code, 0) << called.err;
  EXPECT_NE(called.out.find("does nothing (plug-in " + kOdd + ")"), std::string::npos);
}

}  // namespace
}  // namespace convscope::testing
