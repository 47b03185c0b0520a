// SPDX-License-Identifier: Apache-2.0
// completion_test.cpp: tests shell completion: the scripts for the shells, and the words that the
// program offers to these scripts.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::call_shell;
using testing::Called;

const std::string kProgram = CONVSCOPE_BINARY_DIR "/bin/convscope";

bool is_installed(const std::string& tool) { return call_shell("command -v " + tool).code == 0; }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

// Returns what bash would offer for the last word.
std::vector<std::string> offered(const std::string& words, const std::string& folder = "") {
  const Called result = call_shell(
      "bash -c 'source <(" + kProgram + " completion bash); COMP_WORDBREAKS=\"=:\"; COMP_WORDS=(" +
          kProgram + " " + words +
          "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _convscope; printf \"%s\\n\" "
          "\"${COMPREPLY[@]}\"'",
      folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "") << words;
  return lines_of(result.out);
}

bool holds(const std::vector<std::string>& list, const std::string& word) {
  return std::ranges::count(list, word) == 1;
}

TEST(Completion, BashOffersCommandsOptionsConfigsKeysAndValues) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "quiet.yaml") << "\n";
  const auto commands = offered("\"\"");
  for (const char* name : {"run", "help", "init", "bench", "config"}) {
    EXPECT_TRUE(holds(commands, name)) << name;
  }
  EXPECT_EQ(offered("ru"), (std::vector<std::string>{"run"}));
  EXPECT_EQ(offered("config sh"), (std::vector<std::string>{"show"}));
  EXPECT_EQ(offered("run --epo"), (std::vector<std::string>{"--epochs-limit"}));
  EXPECT_TRUE(holds(offered("bench conv2d --th"), "--threads"));  // of every command
  EXPECT_EQ(offered("run qui", folder.path()),
            (std::vector<std::string>{"quickstart", "quiet.yaml"}));
  EXPECT_EQ(offered("explain quickstart optim.mom"), (std::vector<std::string>{"optim.momentum="}));
  EXPECT_EQ(offered("run quickstart -o out seed = 3 optim.mom"),
            (std::vector<std::string>{"optim.momentum="}));
  // bash splits a word at '=' and replaces only the text after the '=', so the offered words omit
  // the text before it.
  EXPECT_TRUE(holds(offered("run quickstart conv.algorithm = \"\""), "im2col_gemm"));
  EXPECT_EQ(offered("run quickstart data.set = cif"), (std::vector<std::string>{"cifar10"}));
  EXPECT_EQ(offered("init --model resnet1"), (std::vector<std::string>{"resnet18"}));
  EXPECT_EQ(offered("sweep --format c"), (std::vector<std::string>{"csv"}));
  EXPECT_EQ(offered("bench net resnet"), (std::vector<std::string>{"resnet18", "resnet50"}));
  EXPECT_EQ(offered("data fetch fa"), (std::vector<std::string>{"fashion_mnist"}));
  EXPECT_EQ(offered("help bench n"), (std::vector<std::string>{"net"}));
}

TEST(Completion, BashOffersRunFoldersAndFiles) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(call_shell("mkdir -p 'runs/a b' runs/c && touch bench.json", folder.path()).code, 0);
  EXPECT_EQ(offered("plot runs/", folder.path()), (std::vector<std::string>{"runs/a b", "runs/c"}));
  EXPECT_EQ(offered("plot ben", folder.path()), (std::vector<std::string>{"bench.json"}));
  EXPECT_EQ(offered("run quickstart -o ru", folder.path()), (std::vector<std::string>{"runs"}));
  EXPECT_EQ(offered("bench conv2d --shapes ben", folder.path()),
            (std::vector<std::string>{"bench.json"}));
}

// Every declared command and option of the help can be completed.
TEST(Completion, OffersEveryOptionOfTheHelp) {
  int options = 0;
  for (const std::string& line : lines_of(call_program("completion words :").out)) {
    const std::string command = line.substr(0, line.find('\t'));
    const std::vector<std::string> found =
        lines_of(call_program("completion words :" + command + " :--").out);
    for (const std::string& row : lines_of(call_program(command + " --help").out)) {
      const std::size_t at = row.find("--");
      constexpr std::size_t kMax = 6;  // longer texts continue farther right
      if (at == std::string::npos || at > kMax || row[0] != ' ') continue;
      const std::string name = row.substr(at, row.find_first_of(" ,", at) - at);
      ++options;
      EXPECT_TRUE(std::ranges::any_of(
          found, [&](const std::string& word) { return word.substr(0, word.find('\t')) == name; }))
          << command << " " << name;
    }
  }
  EXPECT_GT(options, 20);
}

TEST(Completion, ZshTakesItsScript) {
  if (!is_installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  const testing::TemporaryFolder folder;
  ASSERT_EQ(call_program("completion zsh > _convscope", folder.path()).code, 0);
  const Called checked = call_shell("zsh -n _convscope", folder.path());
  EXPECT_EQ(checked.code, 0) << checked.err;
}

TEST(Completion, FishTakesItsScript) {
  if (!is_installed("fish")) GTEST_SKIP() << "fish is not installed";
  const testing::TemporaryFolder folder;
  ASSERT_EQ(call_program("completion fish > convscope.fish", folder.path()).code, 0);
  const Called checked = call_shell("fish -n convscope.fish", folder.path());
  EXPECT_EQ(checked.code, 0) << checked.err;
  const Called asked =
      call_shell("HOME=$PWD PATH=" CONVSCOPE_BINARY_DIR
                 "/bin:$PATH fish -c 'source convscope.fish; complete -C \"convscope run quick\"'",
                 folder.path());
  EXPECT_TRUE(asked.out.starts_with("quickstart\t")) << asked.out << asked.err;
}

}  // namespace
}  // namespace convscope
