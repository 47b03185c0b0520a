// SPDX-License-Identifier: Apache-2.0
// shell_words_test.cpp: KEY=VALUE that the shell has split.
#include "experiments/cli/shell_words.h"

#include <gtest/gtest.h>

#include "tests/support/call_program.h"

namespace convscope {
namespace {

TEST(ShellWords, APieceOfAMapSaysHowToQuoteIt) {
  EXPECT_EQ(
      missing_quotes({"run", "quickstart", "quant={w_bits:", "4,", "a_bits:", "4}", "seed=2"}),
      "expected KEY=VALUE as one word, got 'quant={w_bits:' and then '4,', because the shell "
      "cuts at spaces; put it in quotes: \"quant={w_bits: 4, a_bits: 4}\"");
  EXPECT_NE(missing_quotes({"sweep.seeds=[1,", "2]"}).find("\"sweep.seeds=[1, 2]\""),
            std::string::npos);
  EXPECT_NE(missing_quotes({"sparsity=method:magnitude", "sparsity=target:0.9"})
                .find("\"sparsity={method: magnitude, target: 0.9}\""),
            std::string::npos);
}

TEST(ShellWords, WholeWordsAreLeftAlone) {
  using Words = std::vector<std::string>;
  for (const Words& words : {Words{"run", "a.yaml", "quant={w_bits: 4, a_bits: 4}", "seed=2"},
                             Words{"note=\"a { b\"", "x"}, Words{"--x", "{b", "c}"},
                             Words{"conv.forward=check:a,b", "conv.forward=check:b,a"},
                             Words{"optim.lr=0.1", "optim.lr=0.2"}, Words{}}) {
    EXPECT_EQ(missing_quotes(words), "") << (words.empty() ? "" : words[0]);
  }
}

TEST(ShellWords, EveryCommandSaysIt) {
  const std::string pieces = " quickstart quant={w_bits: 4, a_bits: 4}";
  for (const std::string command : {"run", "explain", "config show", "bench net", "sweep"}) {
    const testing::Called result = testing::call_program(command + pieces);
    EXPECT_EQ(result.code, 2) << command;
    EXPECT_NE(result.err.find("put it in quotes: \"quant={w_bits: 4, a_bits: 4}\""),
              std::string::npos)
        << result.err;
  }
}

}  // namespace
}  // namespace convscope
