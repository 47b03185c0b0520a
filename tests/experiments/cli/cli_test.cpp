// SPDX-License-Identifier: Apache-2.0
// cli_test.cpp: tests calls of the program: exit codes, and the text on stdout and stderr.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/call_program.h"

namespace convscope {
namespace {

using Result = testing::Called;

Result call(const std::string& arguments, const std::string& environment = "") {
  return testing::call_program(arguments, "", environment);
}

TEST(CommandLine, AlonePrintsAHelpWithTheFirstCommandToType) {
  for (const char* arguments : {"", "-h", "--help"}) {
    const Result result = call(arguments);
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("convscope run quickstart"), std::string::npos);
    EXPECT_NE(result.out.find("\n  config"), std::string::npos);
    EXPECT_NE(result.out.find("\n  help  "), std::string::npos);
    EXPECT_TRUE(
        result.out.ends_with("`convscope help COMMAND` or `convscope COMMAND --help` shows its "
                             "options.\n"))
        << result.out;
    EXPECT_EQ(result.err, "");
  }
}

TEST(CommandLine, PrintsItsVersion) {
  EXPECT_EQ(call("--version").out.substr(0, 10), "convscope ");
  EXPECT_EQ(call("-V").code, 0);
}

TEST(CommandLine, EveryCommandHasAHelp) {
  const std::string help = call("--help").out;
  const std::size_t begin = help.find("\nTrain:\n"), end = help.find("\nExamples:\n");
  ASSERT_LT(begin, end);
  ASSERT_NE(end, std::string::npos);
  std::istringstream lines(help.substr(begin, end - begin));
  std::string line;
  int count = 0, first = 0;
  while (std::getline(lines, line)) {
    if (line == "More commands:") first = count;
    if (!line.starts_with("  ") || line[2] == ' ') continue;  // a heading, a second line
    std::istringstream words(line);
    std::string name;
    words >> name;
    const Result result = call(name + " --help");
    EXPECT_EQ(result.code, 0) << name;
    EXPECT_NE(result.out.find("Usage: convscope " + name), std::string::npos) << result.out;
    EXPECT_EQ(result.err, "") << name;
    ++count;
  }
  EXPECT_EQ(first, 8);  // what a newcomer needs
  EXPECT_GE(count, 20);
}

TEST(CommandLine, MistakesEndWithCode2AndAHint) {
  const auto expect = [](const std::string& arguments, const std::string& sentence) {
    const Result result = call(arguments);
    EXPECT_EQ(result.code, 2) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_EQ(result.err.substr(0, result.err.find('\n')), "error: " + sentence);
  };
  expect("info --jsno", "[info] unknown option '--jsno'; did you mean '--json'?");
  expect("info --thread=2", "[info] unknown option '--thread'; did you mean '--threads'?");
  expect("info --threads many", "[info] --threads: expected an integer from 0 to 1024, got 'many'");
  expect("info --threads", "[info] --threads: expected a value, got nothing");
  expect("--color sometimes", "--color: expected auto, always or never, got 'sometimes'");
  expect("info extra", "[info] expected no further argument, got 'extra'");
  expect("config", "[config] expected one of the commands show, check, keys, list");
  expect("config shwo x",
         "[config] unknown command 'shwo'; did you mean 'show'? (known: show, "
         "check, keys, list)");
  expect("config show", "[config show] expected CONFIG, got nothing");
  EXPECT_TRUE(call("inof").err.starts_with("error: unknown command 'inof'; did you mean 'info'?"));
  EXPECT_EQ(call("inof --help").code, 2);
  EXPECT_TRUE(call("inof --help").err.starts_with("error: unknown command 'inof'; did you mean"));
  EXPECT_EQ(call("help inof").code, 2);
  EXPECT_TRUE(
      call("help inof")
          .err.starts_with("error: [help] unknown command 'inof'; did you mean 'info'? (known: "));
  EXPECT_EQ(
      call("help config shwo").err,
      "error: [help] config: unknown command 'shwo'; did you mean 'show'? (known: show, check, "
      "keys, list)\n");
  EXPECT_EQ(call("help run x").err, "error: [help] run: unknown command 'x'\n");
  EXPECT_TRUE(
      call("op conv --help")
          .err.starts_with("error: [op] unknown command 'conv'; did you mean 'conv2d'? (known: "));
}

TEST(CommandLine, HelpOfACommandIsItsHelp) {
  EXPECT_EQ(call("--threads 2 help run").out, call("run --help").out);
  for (const std::string command : {"", "run", "op conv2d", "config show"}) {
    const Result result = call("help " + command);
    EXPECT_EQ(result.code, 0) << command;
    EXPECT_EQ(result.out, call(command + " --help").out) << command;
    EXPECT_NE(result.out, "") << command;
  }
}

TEST(CommandLine, ConfigCheckTakesASweep) {
  const std::string sweep =
      "config check " CONVSCOPE_SOURCE_DIR "/experiments/configs/synthetic_sweep.yaml";
  const Result good = call(sweep);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_NE(good.out.find(": ok (sweep synthetic_sweep, "), std::string::npos) << good.out;
  EXPECT_EQ(call(sweep + " model.kernel_size=99").code, 3);
  EXPECT_NE(call(sweep + " sweep=null").out.find(": ok (name "), std::string::npos);
}

TEST(CommandLine, PlotLeavesNoOldFigureAndMakesNoFolderNamedLikeAPicture) {
  const testing::TemporaryFolder folder;
  const std::string run =
      "run " CONVSCOPE_SOURCE_DIR
      "/experiments/configs/quickstart.yaml train.epochs=1 data.train_size=64 data.test_size=10 "
      "expect=null -o " +
      (folder / "run");
  ASSERT_EQ(call(run).code, 0);
  std::filesystem::create_directories(folder / "figures");
  for (const char* name : {"steps.svg", "curves.svg", "mine.svg"}) {
    std::ofstream(folder / "figures/" + name) << "old";
  }
  const std::string plot = "plot " + (folder / "run") + " -o ";
  const Result result = call(plot + (folder / "figures"));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find("note: steps: the old "), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("curves: the old"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder / "figures/steps.svg"));
  EXPECT_GT(std::filesystem::file_size(folder / "figures/curves.svg"), 100u);
  EXPECT_TRUE(std::filesystem::exists(folder / "figures/mine.svg"));
  EXPECT_EQ(call(plot + (folder / "a.png")).code, 2);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.png"));
}

TEST(CommandLine, AnOverrideHasAValue) {
  const Result result =
      call("config check " CONVSCOPE_SOURCE_DIR "/experiments/configs/quickstart.yaml optim.lr=");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.err,
            "error: override 'optim.lr=': expected a value, got nothing; optim.lr=null takes the "
            "default\n");
}

TEST(CommandLine, ARunThatIsLimitedSaysThatItIsNotDone) {
  const testing::TemporaryFolder folder;
  const Result result =
      call("run " CONVSCOPE_SOURCE_DIR
           "/experiments/configs/quickstart.yaml train.epochs=2 data.train_size=64 "
           "data.test_size=10 expect=null --epochs-limit 1 -o " +
           (folder / "runs"));
  EXPECT_EQ(result.code, 0);
  EXPECT_NE(result.err.find("paused after epoch 1 of 2; go on with: convscope run --resume "),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.err.find("done "), std::string::npos) << result.err;
}

TEST(CommandLine, MoreImagesThanThereAreAreRefused) {
  const testing::TemporaryFolder folder;
  const auto error_of = [&](const std::string& override) {
    const Result result = call("run " CONVSCOPE_SOURCE_DIR "/experiments/configs/quickstart.yaml " +
                               override + " data.train_size=100 -o " + (folder / "runs"));
    EXPECT_EQ(result.code, 3) << override;
    EXPECT_FALSE(std::filesystem::exists(folder / "runs")) << override;
    return result.err;
  };
  EXPECT_EQ(error_of("data.batch_size=101"),
            "error: [data.batch_size] expected at most the 100 training images that there are, got "
            "101\n");
  EXPECT_EQ(error_of("data.val_split=100"),
            "error: [data.val_split] expected fewer than the 100 training images of "
            "synthetic_digits, got 100\n");
}

TEST(CommandLine, AKeyOfAnotherDataSetIsNamedSo) {
  const Result result = call("config check " CONVSCOPE_SOURCE_DIR
                             "/experiments/configs/quickstart.yaml data.root=/tmp");
  EXPECT_EQ(result.code, 3);
  EXPECT_NE(result.err.find("unknown key 'data.root'; it belongs to cifar10, fashion_mnist, mnist"),
            std::string::npos)
      << result.err;
}

TEST(CommandLine, ConfigMistakesEndWithCode3AndOneLineEach) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "bad.yaml") << "seed: x\nepohcs: 3\n";
  const Result result = call("config check " + (folder / "bad.yaml") + " train.epohcs=3");
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "");
  std::istringstream lines(result.err);
  std::string line;
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with(folder / "bad.yaml:1:1: error: missing key 'data'")) << line;
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with(folder / "bad.yaml:1:1: error: missing key 'model'")) << line;
  std::getline(lines, line);
  EXPECT_EQ(line, folder / "bad.yaml:1:7: error: seed: expected an integer, got 'x'");
  std::getline(lines, line);
  EXPECT_TRUE(line.starts_with(folder / "bad.yaml:2:1: error: unknown key 'epohcs'")) << line;
  std::getline(lines, line);
  EXPECT_EQ(line,
            "error: override 'train.epohcs=3': unknown key 'train.epohcs'; did you mean "
            "'train.epochs'?");
  EXPECT_FALSE(std::getline(lines, line)) << line;
  EXPECT_EQ(call("config check " + (folder / "none.yaml")).code, 3);
  EXPECT_EQ(call("config check " CONVSCOPE_SOURCE_DIR "/experiments/configs/quickstart.yaml").code,
            0);
  EXPECT_EQ(call("config check " CONVSCOPE_SOURCE_DIR "/experiments/configs/quickstart.yaml "
                 "conv.per_layer.c9=auto")
                .code,
            3);
}

TEST(CommandLine, InfoIsReadableByPeopleAndMachines) {
  const Result text = call("info");
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("cuda"), std::string::npos);
  const Result json = call("info --json");
  EXPECT_EQ(json.code, 0);
  const nlohmann::json parsed = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_FALSE(parsed.is_discarded()) << json.out;
  EXPECT_EQ(parsed.at("version"), call("-V").out.substr(10, call("-V").out.size() - 11));
  EXPECT_TRUE(parsed.at("conv2d_algorithms").at("cpu").contains("reference"));
  EXPECT_TRUE(parsed.at("optimizers").contains("sgd"));
}

TEST(CommandLine, ThreadsBeatTheConfig) {
  const Result result = call("info --json --threads 3");
  EXPECT_EQ(nlohmann::json::parse(result.out).at("threads"), 3);
}

TEST(CommandLine, ColoursOnlyWhenAsked) {
  EXPECT_EQ(call("inof").err.find('\033'), std::string::npos);
  EXPECT_NE(call("--color always inof").err.find("\033["), std::string::npos);
  EXPECT_EQ(call("--color never inof", "NO_COLOR=").err.find('\033'), std::string::npos);
}

TEST(CommandLine, AFullDiskIsAnError) {
  const int status = std::system(CONVSCOPE_BINARY_DIR "/bin/convscope info >/dev/full 2>/dev/null");
  EXPECT_EQ(WEXITSTATUS(status), 6);
}

}  // namespace
}  // namespace convscope
