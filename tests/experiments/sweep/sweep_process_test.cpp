// SPDX-License-Identifier: Apache-2.0
// sweep_process_test.cpp: tests `convscope sweep` as a process: its output, resuming after a kill
// at a random moment, and a failing member, which must not end the others.
#include <chrono>
#include <random>
#include <thread>

#include "experiments/run_folder/run_search.h"
#include "tests/experiments/program.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

constexpr const char* kConfig = R"(name: small
data: {set: synthetic_digits, train_size: 640, test_size: 100, batch_size: 16}
layers:
  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 5}
  - {type: relu}
  - {type: max_pool2d, kernel_size: 4}
  - {type: flatten}
  - {type: linear, name: f1, out_features: 10}
optim: {lr: 0.02}
train: {epochs: 3}
log: {every_steps: 1}
sweep:
  members:
    - {name: dense}
    - {name: pruned, sparsity: {method: magnitude, target: 0.5}}
  seeds: [1, 2]
)";

class Sweep : public ::testing::Test {
 protected:
  Sweep() { std::ofstream(root_.path() + "/small.yaml") << kConfig; }

  Program start(const std::string& runs, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {kProgram,
                                      "sweep",
                                      root_.path() + "/small.yaml",
                                      "-o",
                                      root_.path() + "/" + runs,
                                      "--threads",
                                      "1",
                                      "-f",
                                      "csv"};
    words.insert(words.end(), more.begin(), more.end());
    return {words, root_.path() + "/" + runs};
  }
  std::string folder(const std::string& runs) const { return root_.path() + "/" + runs + "/small"; }
  std::string output(const std::string& runs) const {
    return text_of(root_.path() + "/" + runs + ".out");
  }
  std::string errors(const std::string& runs) const {
    return text_of(root_.path() + "/" + runs + ".err");
  }
  // Returns the table cells that do not depend on the machine: all but times, memory and load.
  static std::string without_times(const std::string& csv) {
    std::string out;
    std::istringstream lines(csv);
    std::vector<std::string> names;
    for (std::string line; std::getline(lines, line); out += '\n') {
      std::vector<std::string> cells = {""};
      bool quoted = false;
      for (const char c : line) {
        if (c == '"') quoted = !quoted;
        if (c == ',' && !quoted) {
          cells.emplace_back();
        } else {
          cells.back() += c;
        }
      }
      if (names.empty()) names = cells;
      EXPECT_EQ(cells.size(), names.size()) << line;
      for (std::size_t i = 0; i < std::min(cells.size(), names.size()); ++i) {
        if (!names[i].starts_with("avg_") && names[i] != "busy") out += cells[i] + ",";
      }
    }
    return out;
  }
  // Waits until a run of the sweep has logged this many steps.
  bool wait_for_steps(const std::string& runs, std::int64_t steps) const {
    for (int i = 0; i < 6000; ++i) {
      for (const std::string& run : find_runs(folder(runs))) {
        const std::string rows = text_of(run + "/metrics.jsonl");
        if (std::count(rows.begin(), rows.end(), '\n') >= steps) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  TemporaryFolder root_;
  std::string threads_ = "1";
};

TEST_F(Sweep, killed_at_random_moments_and_continued_gives_the_same_table) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(start("whole").wait(), 0) << errors("whole");
  const auto took = std::chrono::steady_clock::now() - begin;
  const std::string wanted = without_times(output("whole"));
  EXPECT_NE(wanted.find("\ndense,16,5,"), std::string::npos) << wanted;
  EXPECT_NE(wanted.find("masked dense,3,1,done,"), std::string::npos) << wanted;

  std::mt19937 random(std::random_device{}());
  std::vector<double> parts;
  for (int kills = 0; kills < 2; ++kills) {
    parts.push_back(std::uniform_real_distribution<double>(0, 0.6)(random));
    Program killed = start("killed");
    std::this_thread::sleep_for(took * parts.back());
    killed.send(SIGKILL);
    killed.wait();
  }
  SCOPED_TRACE(cat("killed after the parts ", parts[0], " and ", parts[1], " of a whole sweep"));
  EXPECT_EQ(start("killed").wait(), 0) << errors("killed");
  EXPECT_EQ(without_times(output("killed")), wanted);
  EXPECT_EQ(without_times(text_of(folder("killed") + "/sweep.csv")), wanted);
  EXPECT_EQ(find_runs(folder("killed")).size(), 4u);  // no run was begun twice
}

TEST_F(Sweep, interrupted_writes_checkpoints_and_leaves_nobody_behind) {
  Program stopped = start("stopped", {"--jobs", "2"});
  ASSERT_TRUE(wait_for_steps("stopped", 20)) << errors("stopped");
  stopped.send(SIGINT);
  EXPECT_EQ(stopped.wait(), 130) << errors("stopped");
  EXPECT_EQ(output("stopped"), "");
  int interrupted = 0;
  for (const std::string& run : find_runs(folder("stopped"))) {
    const std::string state = read_run_status(run).state;
    EXPECT_TRUE(state == "INTERRUPTED" || state == "DONE" || state == "UNREADABLE") << state;
    if (state != "INTERRUPTED") continue;
    ++interrupted;
    EXPECT_TRUE(std::filesystem::exists(run + "/ckpt/last.safetensors")) << run;
  }
  EXPECT_GE(interrupted, 1);
  EXPECT_NE(text_of(folder("stopped") + "/sweep.state.json").find("\"INTERRUPTED\""),
            std::string::npos);
}

TEST_F(Sweep, interrupted_while_it_makes_its_data_ends_at_once) {
  // Generating digits takes many seconds before the first member starts.
  Program drawing = start("drawing", {"data.test_size=400000"});
  for (int i = 0; i < 6000 && errors("drawing").find("to train") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  drawing.send(SIGINT);
  EXPECT_EQ(drawing.wait(), 1000 + SIGINT) << errors("drawing");  // nothing waited for the data
  EXPECT_TRUE(find_runs(folder("drawing")).empty());
}

TEST_F(Sweep, killed_takes_its_members_with_it) {
  Program killed = start("gone", {"train.epochs=100000"});
  ASSERT_TRUE(wait_for_steps("gone", 20)) << errors("gone");
  killed.send(SIGKILL);
  killed.wait();
  const std::vector<std::string> runs = find_runs(folder("gone"));
  ASSERT_EQ(runs.size(), 1u);
  std::string state = "RUNNING";
  for (int i = 0; i < 2000 && state == "RUNNING"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    state = read_run_status(runs[0]).state;
  }
  EXPECT_EQ(state, "INTERRUPTED");  // it was asked to stop, and wrote its checkpoint
}

TEST_F(Sweep, does_not_train_again_what_is_finished_and_only_what_a_change_touches) {
  const std::vector<std::string> quick = {"train.epochs=1", "sweep.seeds=[1]"};
  EXPECT_EQ(start("again", {"train.epochs=1", "sweep.seeds=[1]", "--dry-run"}).wait(), 0);
  EXPECT_EQ(output("again"),
            "dense   seed 1  to do  \n"
            "pruned  seed 1  to do    sparsity={method: magnitude, target: 0.5}\n");
  EXPECT_FALSE(std::filesystem::exists(folder("again")));  // a look leaves no trace

  ASSERT_EQ(start("again", quick).wait(), 0) << errors("again");
  const std::string table = output("again");
  const std::vector<std::string> runs = find_runs(folder("again"));
  ASSERT_EQ(runs.size(), 2u);
  threads_ = "2";  // changes no result, so nothing is trained again
  ASSERT_EQ(start("again", quick).wait(), 0);
  EXPECT_EQ(output("again"), table);  // including the earlier times
  EXPECT_EQ(find_runs(folder("again")), runs);
  EXPECT_NE(errors("again").find("2 members, 2 done already\n"), std::string::npos)
      << errors("again");

  ASSERT_EQ(
      start("again", {"train.epochs=1", "sweep.seeds=[1]", "sweep.members.1.sparsity.target=0.6"})
          .wait(),
      0)
      << errors("again");
  EXPECT_NE(errors("again").find("2 members, 1 done already, 1 to train\n"), std::string::npos)
      << errors("again");
  EXPECT_EQ(find_runs(folder("again")).size(), 3u);

  EXPECT_EQ(start("again", {"train.epochs=1", "--dry-run"}).wait(), 0);
  EXPECT_EQ(output("again"),
            "dense   seed 1  done   \n"
            "pruned  seed 1  done     sparsity={method: magnitude, target: 0.5}\n"
            "dense   seed 2  to do  \n"
            "pruned  seed 2  to do    sparsity={method: magnitude, target: 0.5}\n");
}

TEST_F(Sweep, with_a_failing_member_goes_on_and_ends_with_1) {
  const std::vector<std::string> words = {
      "train.epochs=1", "sweep.seeds=[1]",
      "sweep.members=[{name: gate, expect: {test_acc_min: 100}}, {name: blank, data.batch_size: "
      "16, quant: {start_from: no/such/run}}, {name: good}]"};
  EXPECT_EQ(start("failing", words).wait(), 1) << errors("failing");
  std::istringstream lines(output("failing"));
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 4u) << output("failing");
  EXPECT_NE(rows[1].find(",failed,\"seed 1: [expect] expected a test accuracy of at least 100"),
            std::string::npos)
      << rows[1];
  EXPECT_NE(rows[2].find(",failed,\"seed 1: ["), std::string::npos) << rows[2];
  EXPECT_NE(rows[2].find("no/such/run"), std::string::npos) << rows[2];
  EXPECT_NE(rows[3].find(",done,"), std::string::npos) << rows[3];
  EXPECT_NE(errors("failing").find("[1/3] gate seed 1   failed: [expect]"), std::string::npos)
      << errors("failing");

  // A failed member is trained again, unless the same failure would repeat.
  EXPECT_EQ(start("failing", words).wait(), 1);
  EXPECT_NE(errors("failing").find("1 done already, 1 failed before (--retry-failed trains them "
                                   "again), 1 to train\n"),
            std::string::npos)
      << errors("failing");
}

TEST_F(Sweep, that_another_process_runs_is_refused) {
  Program first = start("busy", {"train.epochs=100000"});
  ASSERT_TRUE(wait_for_steps("busy", 3)) << errors("busy");
  Program second({kProgram, "sweep", root_.path() + "/small.yaml", "-o", root_.path() + "/busy"},
                 root_.path() + "/second");
  EXPECT_EQ(second.wait(), 2);
  EXPECT_NE(errors("second").find("expected a sweep that no process works on"), std::string::npos)
      << errors("second");
  first.send(SIGTERM);
  EXPECT_EQ(first.wait(), 143);
}

TEST_F(Sweep, without_its_data_says_so_once_and_ends_with_4) {
  std::ofstream(root_.path() + "/small.yaml")
      << "data: {set: mnist, root: " << root_.path() << "}\nmodel: {type: lenet5}\n"
      << "sweep: {seeds: [1, 2]}\n";
  EXPECT_EQ(start("nodata").wait(), 4);
  EXPECT_NE(errors("nodata").find("convscope data fetch mnist"), std::string::npos)
      << errors("nodata");
  EXPECT_TRUE(find_runs(folder("nodata")).empty());
}

TEST_F(Sweep, with_an_algorithm_that_refuses_its_layer_trains_nothing_and_ends_with_5) {
  std::string config = kConfig;
  config.replace(config.find("{name: pruned"), std::string::npos,
                 "{name: tiles, conv.algorithm: winograd_f4x3}\n  seeds: [1]\n");
  std::ofstream(root_.path() + "/small.yaml") << config;
  for (const bool dry : {true, false}) {
    const std::vector<std::string> words =
        dry ? std::vector<std::string>{"--dry-run"} : std::vector<std::string>{};
    EXPECT_EQ(start("refusing", words).wait(), 5) << errors("refusing");
    EXPECT_NE(errors("refusing")
                  .find("small.yaml:15: member 'tiles': [conv2d] layer c1: expected an "
                        "algorithm that can compute forward"),
              std::string::npos)
        << errors("refusing");
    EXPECT_NE(errors("refusing").find("'winograd_f4x3' expects a kernel of 3x3, got 5x5"),
              std::string::npos)
        << errors("refusing");
    EXPECT_EQ(output("refusing"), dry ? "dense  seed 1  to do  \n"
                                        "tiles  seed 1  refused  conv.algorithm=winograd_f4x3\n"
                                      : "");
    EXPECT_FALSE(std::filesystem::exists(folder("refusing")));
  }
}

TEST_F(Sweep, a_mistake_of_the_config_beats_a_refusal_and_ends_with_3) {
  const std::string both =
      "sweep.members=[{name: tiles, conv.algorithm: winograd_f4x3}, {name: big, "
      "layers.0.kernel_size: 40}]";
  EXPECT_EQ(start("both", {both, "sweep.seeds=[1]", "--dry-run"}).wait(), 3) << errors("both");
  EXPECT_NE(errors("both").find("member 'tiles'"), std::string::npos) << errors("both");
  EXPECT_NE(errors("both").find("member 'big'"), std::string::npos) << errors("both");
  EXPECT_NE(output("both").find("big    seed 1  refused"), std::string::npos) << output("both");
}

TEST_F(Sweep, that_asks_for_more_images_than_there_are_trains_nothing_and_ends_with_3) {
  const std::string greedy =
      "sweep.members=[{name: good}, {name: batch, data.batch_size: 700}, {name: split, "
      "data.val_split: 640}]";
  EXPECT_EQ(start("greedy", {greedy, "sweep.seeds=[1]"}).wait(), 3) << errors("greedy");
  EXPECT_NE(errors("greedy").find("member 'batch': [data.batch_size] expected at most the 640"),
            std::string::npos)
      << errors("greedy");
  EXPECT_NE(errors("greedy").find("member 'split': [data.val_split] expected fewer than the 640"),
            std::string::npos)
      << errors("greedy");
  EXPECT_TRUE(find_runs(folder("greedy")).empty());
}

TEST_F(Sweep, with_a_mistake_trains_nothing_and_ends_with_3) {
  EXPECT_EQ(start("bad", {"sweep.members.1.sparsity.target=7"}).wait(), 3);
  EXPECT_NE(errors("bad").find("sparsity.target: expected 0 to 1, got 7"), std::string::npos)
      << errors("bad");
  EXPECT_FALSE(std::filesystem::exists(folder("bad")));
}

}  // namespace
}  // namespace convscope::testing
