// SPDX-License-Identifier: Apache-2.0
// note_test.cpp: tests tags and notes in a config, in a run's summary, and when a command changes
// them later.
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "experiments/config/experiment_config.h"
#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"
#include "experiments/run_folder/user_words.h"
#include "tests/experiments/training_fixture.h"
#include "tests/support/call_program.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::TemporaryFolder;
using testing::text_of;

constexpr const char* kConfig =
    "data: {set: synthetic_digits, train_size: 64, test_size: 32}\nmodel: {type: lenet5}\n";

std::string mistake_of(const std::string& more) {
  try {
    parse_config_text(kConfig + more, "a.yaml");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(UserWords, StandInTheResolvedConfigAndComeBackFromIt) {
  const ExperimentConfig config =
      parse_config_text(cat(kConfig, "tags: [paper, fig/3]\nnote: 'a: note # 1'\n"), "a.yaml");
  EXPECT_EQ(config.tags, (std::vector<std::string>{"paper", "fig/3"}));
  const ExperimentConfig again = parse_config_text(to_yaml(config), "b.yaml");
  EXPECT_EQ(again.tags, config.tags);
  EXPECT_EQ(again.note, "a: note # 1");
  // If the user's config has neither tags nor a note, the resolved config does not mention them.
  const std::string none = to_yaml(parse_config_text(kConfig, "a.yaml"));
  EXPECT_EQ(none.find("tags"), std::string::npos);
  EXPECT_EQ(none.find("note"), std::string::npos);
}

TEST(UserWords, ThatNoTableCanShowAreRefused) {
  EXPECT_NE(mistake_of("tags: ['a, b']\n").find("expected at most 100 letters"), std::string::npos);
  EXPECT_NE(mistake_of("tags: [a, a]\n").find("expected each tag once"), std::string::npos);
  EXPECT_NE(mistake_of("note: \"a\\nb\"\n").find("a note of one line"), std::string::npos);
}

TEST(UserWords, EarlyStopNeedsValidationImages) {
  EXPECT_NE(mistake_of("early_stop: {patience: 3}\n").find("expected data.val_split above 0"),
            std::string::npos);
  EXPECT_NE(mistake_of("early_stop: {metric: val_acc}\n").find("expected a patience"),
            std::string::npos);
  EXPECT_NE(mistake_of("early_stop: {patience: 3, metric: acc}\n").find("val_loss"),
            std::string::npos);
}

TEST(UserWords, AreChangedByTheCommandNote) {
  const TemporaryFolder root;
  const std::string runs = root.path() + "/runs";
  std::ofstream(root.path() + "/a.yaml") << kConfig << "tags: [first]\ntrain: {epochs: 1}\n";
  ASSERT_EQ(call_program("run " + root.path() + "/a.yaml -q -o " + runs).code, 0);
  const std::string folder = resolve_run(runs + "/a");
  const auto summary = [&] { return parse_summary(text_of(folder + "/summary.json")); };
  EXPECT_EQ(summary().tags, "first");
  const std::string note = "note " + folder;
  EXPECT_EQ(call_program(note + " 'good one' --tag paper --untag first").code, 0);
  EXPECT_EQ(summary().tags, "paper");
  EXPECT_EQ(summary().note, "good one");
  EXPECT_EQ(call_program(note).out, "tags   paper\nnote   good one\n");
  EXPECT_EQ(call_program(note + " --untag nothing").code, 2);
  EXPECT_EQ(call_program(note + " --tag 'a b'").code, 2);
  EXPECT_EQ(summary().tags, "paper");
  const RunFolder held = RunFolder::reopen(folder);  // as a resumed run would
  held.set_status({.state = "RUNNING"});
  const auto refused = call_program(note + " late");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find(cat("which process ", static_cast<std::int64_t>(getpid()))),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(summary().note, "good one");
}

// If another process writes a summary while the command waits, the command keeps this summary.
TEST(UserWords, AreAddedToTheSummaryAsItIsWhenTheRunIsFree) {
  const TemporaryFolder root;
  RunSummary summary;
  summary.tags = "first";
  auto held = std::make_unique<RunFolder>(RunFolder::create(root.path(), "a", 1));
  const std::string folder = held->path();
  held->write("config.yaml", kConfig);
  held->set_status({.state = "DONE", .exit_code = 0});
  held->write("summary.json", to_json_text(summary));
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    summary.tags = "first, second";
    summary.epochs = 2;
    held->write("summary.json", to_json_text(summary));
    held.reset();
  });
  const auto noted = call_program("note " + folder + " --tag third");
  other.join();
  EXPECT_EQ(noted.code, 0) << noted.err;
  const RunSummary found = parse_summary(text_of(folder + "/summary.json"));
  EXPECT_EQ(found.tags, "first, second, third");
  EXPECT_EQ(found.epochs, 2);
}

}  // namespace
}  // namespace convscope
