// SPDX-License-Identifier: Apache-2.0
// bad_plugin_files_test.cpp: tests that the program refuses a file that is not a plug-in of this
// program, or that contains an unusable algorithm. The refusal is one sentence and exit code 5,
// without a crash.
#include <elf.h>
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
  expect_refused(folder / "text.so", "it is not a shared library");
  expect_refused(folder / "empty.so", "it is not a shared library");
  expect_refused(folder / "cut.so", "it holds no plug-in");
  expect_refused(folder / "nothing", "it is a folder without a file *.so");
  expect_refused("/dev/zero", "it is not a file");
  const std::string program = std::string(CONVSCOPE_BINARY_DIR) + "/bin/convscope";
  expect_refused(program, "it holds no plug-in");
}

// Returns a copy of a good plug-in with other bytes at the given offset.
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
  expect_refused(changed(folder, offsetof(PluginFacts, algorithm_bytes), 8),
                 "an algorithm has 8 bytes there");
  expect_refused(changed(folder, offsetof(PluginFacts, problem_bytes), 8),
                 "a problem has 8 bytes there");
  expect_refused(changed(folder, offsetof(PluginFacts, bytes), 1), "its facts have 1 bytes there");
  expect_refused(changed(folder, offsetof(PluginFacts, pointer_bytes), 4),
                 "a pointer has 4 bytes there and 8 here");
  expect_refused(changed(folder, offsetof(PluginFacts, cxx11_abi), 0), "_GLIBCXX_USE_CXX11_ABI=0");
  expect_refused(changed(folder, offsetof(PluginFacts, layout), 1),
                 "built with structs whose members have other offsets");
}

TEST(BadPluginFile, WithoutItsFunctionIsRefused) {
  const TemporaryFolder folder;
  std::string bytes = text_of(kPlanted);
  const std::string name = kConv2dPluginEntry;
  for (std::size_t at = 0; (at = bytes.find(name, at)) != std::string::npos;) bytes[at] = 'X';
  std::ofstream(folder / "mute.so", std::ios::binary) << bytes;
#if defined(__SANITIZE_ADDRESS__)
  // With a sanitizer, the data of the plug-in also refer to the function that was renamed. So the
  // dynamic loader reports an undefined symbol before the program can check the plug-in.
  expect_refused(folder / "mute.so", "undefined symbol: X");
#else
  expect_refused(folder / "mute.so", "it exports no convscope_conv2d_plugin()");
#endif
}

// The last bytes of a plug-in file are never loaded, so a plug-in that lacks only these still
// works. If more bytes are missing, the dynamic loader may end the process.
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

// ---- what the loader would call ----------------------------------------------------------------

// Returns a copy of a plug-in in which one value is changed: an entry of the ELF dynamic section,
// or the array to which this entry points.
std::string with_entry(const TemporaryFolder& folder, Elf64_Sxword tag, Elf64_Xword value) {
  std::string bytes = text_of(kPlanted);
  Elf64_Ehdr head;
  std::memcpy(&head, bytes.data(), sizeof head);
  for (int i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment,
                bytes.data() + head.e_phoff + static_cast<std::size_t>(i) * sizeof segment,
                sizeof segment);
    if (segment.p_type != PT_DYNAMIC) continue;
    for (std::size_t at = segment.p_offset; at < segment.p_offset + segment.p_filesz;
         at += sizeof(Elf64_Dyn)) {
      Elf64_Dyn entry;
      std::memcpy(&entry, bytes.data() + at, sizeof entry);
      if (entry.d_tag != tag) continue;
      entry.d_un.d_val = value;
      std::memcpy(bytes.data() + at, &entry, sizeof entry);
      std::ofstream(folder / "entry.so", std::ios::binary) << bytes;
      return folder / "entry.so";
    }
  }
  return "";
}

TEST(BadPluginFile, WithAPlaceOutsideOfItsCodeIsRefusedBeforeItRuns) {
  const TemporaryFolder folder;
  const struct {
    Elf64_Sxword tag;
    const char* sentence;
  } entries[] = {{DT_FINI_ARRAY, "it is damaged: its DT_FINI_ARRAY is outside of what is loaded"},
                 {DT_INIT_ARRAY, "it is damaged: its DT_INIT_ARRAY is outside of what is loaded"},
                 {DT_FINI, "it is damaged: its DT_FINI is not in its code"},
                 {DT_INIT, "it is damaged: its DT_INIT is not in its code"},
                 {DT_SYMTAB, "it is damaged: its DT_SYMTAB is outside of what is loaded"},
                 {DT_STRTAB, "it is damaged: its DT_STRTAB is outside of what is loaded"},
                 {DT_RELA, "it is damaged: its DT_RELA is outside of what is loaded"},
                 {DT_GNU_HASH, "it is damaged: its DT_GNU_HASH is outside of what is loaded"}};
  for (const auto& entry : entries) {
    const std::string file = with_entry(folder, entry.tag, 0x7fff'0000'0000);
    if (!file.empty()) expect_refused(file, entry.sentence);
  }
  // The changed address is inside the file, but no code is stored there.
  const std::string elsewhere = with_entry(folder, DT_FINI_ARRAY, 64);
  ASSERT_FALSE(elsewhere.empty());
  expect_refused(elsewhere, "it is damaged: its DT_FINI_ARRAY points outside of its code");
}

// A plug-in that crashes when the process ends does not change the exit code of finished work.
TEST(BadPluginFile, ThatCrashesAtTheEndChangesNoExitCode) {
  const Called called =
      call_program("info --plugin '" + kCheat + "'", "", "CONVSCOPE_CHEAT=crashes_at_end");
  EXPECT_EQ(called.code, 0) << called.err;
  EXPECT_NE(called.out.find("the textbook, and something beside it"), std::string::npos);
}

TEST(PluginFolder, KeepsTheGoodOnesAndNamesTheOthers) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(kCheat, folder / "good.so");
  std::ofstream(folder / "text.so") << "no library";
  const Called called = call_program("info --plugin '" + folder.path() + "'");
  EXPECT_EQ(called.code, 0) << called.err;
  EXPECT_NE(called.out.find("the textbook, and something beside it"), std::string::npos);
  EXPECT_NE(called.err.find("text.so, but it is not a shared library; it is left out\n"),
            std::string::npos)
      << called.err;
  EXPECT_NE(called.err.find("runs with your rights"), std::string::npos) << called.err;
}

// ---- algorithms --------------------------------------------------------------------------------

struct OddAlgorithm {
  const char* mistake;
  const char* sentence;
};

class OddPlugin : public ::testing::TestWithParam<OddAlgorithm> {};

TEST_P(OddPlugin, IsRefusedWithItsMistake) {
  expect_refused(kOdd, GetParam().sentence,
                 std::string("CONVSCOPE_ODD_PLUGIN=") + GetParam().mistake);
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, OddPlugin,
    ::testing::Values(
        OddAlgorithm{"throws", "ends convscope_conv2d_plugin() with an exception: on purpose"},
        OddAlgorithm{"throws_a_number", "ends convscope_conv2d_plugin() with an exception"},
        OddAlgorithm{"null_name", "holds an algorithm that has no name"},
        OddAlgorithm{"bad_name",
                     "is named 'No Name': expected a name of at most 40 lower-case letters"},
        OddAlgorithm{"policy_name", "is named 'auto': expected another name"},
        OddAlgorithm{"taken_name", "has a name that is taken: "},
        OddAlgorithm{"no_idea", "has no idea"},
        OddAlgorithm{"no_supports", "has no function supports"},
        OddAlgorithm{"no_cost", "has no function cost"},
        OddAlgorithm{"no_workspace_bytes", "has no function workspace_bytes"},
        OddAlgorithm{"no_direction", "has no direction"},
        OddAlgorithm{"cuda", "is not for the CPU"},
        OddAlgorithm{"growth", "has the error_growth 0"},
        OddAlgorithm{"growth_nan", "has the error_growth nan"},
        OddAlgorithm{"growth_infinite", "has the error_growth inf"},
        OddAlgorithm{"growth_negative", "has the error_growth -8"},
        OddAlgorithm{"growth_large",
                     "has the error_growth 1e+30: a convolution may state 256 at most"},
        OddAlgorithm{"growth_of_chain",
                     "has the error_growth 100 and one_chain: a convolution may state 16 at most"},
        OddAlgorithm{"half_prepared", "has no function prepare_weights to match prepared_bytes"},
        OddAlgorithm{"supports_throws", "its supports() throws an exception (on purpose)"},
        OddAlgorithm{
            "supports_crashes",
            "it ends the process by signal 11 (Segmentation fault) when supports(), cost() or "
            "workspace_bytes() of the algorithm 'odd' is asked"},
        OddAlgorithm{"supports_exits", "it ends the process with status 3"},
        OddAlgorithm{"no_reason", "its supports() answers no without a sentence"},
        OddAlgorithm{"free", "its cost() answers flops = 0"},
        OddAlgorithm{"huge", "its workspace_bytes() answers 18446744073709551615 bytes"},
        OddAlgorithm{"ladder_name", "there is a ladder 'winograd' already"},
        OddAlgorithm{"ladder_algorithm", "has a rung 'nobody', but no algorithm has this name"},
        OddAlgorithm{"ladder_problem", "has an invalid problem"},
        OddAlgorithm{"ladder_isa", "has a rung with no instruction set"},
        OddAlgorithm{"ladder_rungs", "has fewer than two rungs"}),
    [](const auto& odd) { return std::string(odd.param.mistake); });

TEST(OddPlugin, WithoutAMistakeIsTaken) {
  const Called called = call_program("info --plugin '" + kOdd + "'");
  EXPECT_EQ(called.code, 0) << called.err;
  EXPECT_NE(called.out.find("does nothing (plug-in " + kOdd + ")"), std::string::npos);
}

}  // namespace
}  // namespace convscope::testing
