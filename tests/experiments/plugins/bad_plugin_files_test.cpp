// SPDX-License-Identifier: Apache-2.0
// bad_plugin_files_test.cpp: tests that the program refuses a file that is not a plug-in of this
// program, or that contains an unusable algorithm. The refusal is one sentence and exit code 5,
// without a crash.
#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "framework/check.h"
#include "layers/plugin/plugin.h"
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

// Returns a copy of a good plug-in with another number at the given offset of its ConvscopePlugin.
std::string changed(const TemporaryFolder& folder, std::size_t offset, std::uint32_t value) {
  std::string bytes = text_of(kCheat);
  const std::size_t at = bytes.find(CONVSCOPE_PLUGIN_MAGIC);
  EXPECT_NE(at, std::string::npos);
  std::memcpy(bytes.data() + at + offset, &value, sizeof value);
  std::ofstream(folder / "changed.so", std::ios::binary) << bytes;
  return folder / "changed.so";
}

// The static constructors of a loaded file would print a line.
TEST(BadPluginFile, OfAnotherVersionIsRefusedBeforeAnythingOfItRuns) {
  const TemporaryFolder folder;
  const auto expect = [&](std::size_t offset, std::uint32_t value, const std::string& sentence) {
    expect_refused(changed(folder, offset, value), sentence, "CONVSCOPE_CHEAT=prints_at_start");
  };
  // Version 5 was the last with C++ structs; it had the same first members. In version 6, x and y
  // had one layout.
  for (const std::uint32_t version : {5, 6, CONVSCOPE_PLUGIN_VERSION + 1}) {
    expect(offsetof(ConvscopePlugin, version), version,
           cat("it was built for version ", version,
               " of the plug-in interface, and this program has version ", CONVSCOPE_PLUGIN_VERSION,
               ": build it again"));
  }
  expect(offsetof(ConvscopePlugin, size), 8,
         "it is damaged (ConvscopePlugin: 8 bytes there, 72 to 88 here): build it again");
  expect(offsetof(ConvscopePlugin, size), 4096,
         "it was built for a newer convscope (ConvscopePlugin: 4096 bytes there, ");
  expect(offsetof(ConvscopePlugin, conv2d_arguments_size), 4096,
         "it was built for a newer convscope (arguments of its functions: 4096 bytes there, ");
  expect(offsetof(ConvscopePlugin, magic), 0, "it holds no plug-in");
}

TEST(BadPluginFile, WithStructsOfAnUnknownSizeIsRefused) {
  const TemporaryFolder folder;
  expect_refused(changed(folder, offsetof(ConvscopePlugin, conv2d_algorithm_size), 8),
                 "it is damaged (ConvscopeConv2dAlgorithm: 8 bytes there, ");
  expect_refused(changed(folder, offsetof(ConvscopePlugin, conv2d_algorithm_count), 0),
                 "it holds no algorithm");
}

TEST(BadPluginFile, WithoutItsSymbolIsRefused) {
  const TemporaryFolder folder;
  std::string bytes = text_of(kPlanted);
  const std::string name = "convscope_plugin";
  for (std::size_t at = 0; (at = bytes.find(name, at)) != std::string::npos;) bytes[at] = 'X';
  std::ofstream(folder / "mute.so", std::ios::binary) << bytes;
#if defined(__SANITIZE_ADDRESS__)
  // With a sanitizer, other symbols are derived from the name, too.
  expect_refused(folder / "mute.so", "onvscope_plugin");
#else
  expect_refused(folder / "mute.so", "it exports no convscope_plugin: its source must end with");
#endif
}

TEST(CPlugin, IsCheckedAsEveryOther) {
  const Called called = call_program("check conv2d plain_c --quick --plugin '" + kC + "'");
  EXPECT_EQ(called.code, 0) << called.out << called.err;
  EXPECT_NE(called.out.find("ok     plain_c: "), std::string::npos) << called.out;
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

// The file is first opened in a child process, so a crash of the loader becomes a sentence. The
// functions at the end of the process are never called.
TEST(BadPluginFile, WithADamagedTableIsRefusedOrWhole) {
  const TemporaryFolder folder;
  for (const Elf64_Sxword tag : {DT_FINI_ARRAY, DT_INIT_ARRAY, DT_FINI, DT_INIT, DT_SYMTAB,
                                 DT_STRTAB, DT_RELA, DT_GNU_HASH}) {
    const std::string file = with_entry(folder, tag, 0x7fff'0000'0000);
    if (file.empty()) continue;
    if (tag == DT_FINI_ARRAY || tag == DT_FINI) {
      EXPECT_EQ(call_program("info --plugin '" + file + "'").code, 0) << tag;
    } else {
      expect_refused(file, " when it is opened: build it again, or repair it");
    }
  }
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
        OddAlgorithm{"throws", "it ends the process by signal 6 (Aborted) when it is opened"},
        OddAlgorithm{"null_name", "holds an algorithm that has no name"},
        OddAlgorithm{"bad_name",
                     "is named 'No Name': expected a name of at most 40 lower-case letters"},
        OddAlgorithm{"policy_name", "is named 'auto': expected another name"},
        OddAlgorithm{"taken_name", "has a name that is taken: "},
        OddAlgorithm{"no_idea", "has no idea"}, OddAlgorithm{"no_direction", "has no direction"},
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
