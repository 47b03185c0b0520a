// SPDX-License-Identifier: Apache-2.0
// compare_runs_test.cpp: tests `convscope compare` on runs: which runs belong to each side, how the
// sides differ, and what the command reports about noise.
#include "experiments/compare/compare_runs.h"

#include <nlohmann/json.hpp>

#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/run_here.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using nlohmann::json;

constexpr const char* kEnvironment =
    "{\"version\": \"0.1.0\", \"cpu\": \"one cpu\", \"isa\": \"avx2\", \"threads\": 2,"
    "\"load_average\": \"0.50 0.40 0.30 1/100 77\", \"started\": \"now\", \"arguments\": [\"x\"],"
    "\"project\": {\"path\": \"/a\", \"commit\": \"abc\", \"dirty\": false}}";

class Compare : public ::testing::Test {
 protected:
  std::string add(const std::string& name, int seed, double acc, const std::string& config,
                  const std::string& environment = kEnvironment) const {
    const std::string run =
        write_run(root(), {.name = name, .seed = seed, .test_acc = acc, .config = config});
    write_text(run + "/env.json", environment);
    return run;
  }
  // Two configs with three seeds each, the second one clearly better.
  void add_both() const {
    for (int seed = 1; seed <= 3; ++seed) {
      add("small", seed, 90 + 0.1 * seed, "optim: {lr: 0.05}\n");
      add("large", seed, 95 + 0.2 * seed, "optim: {lr: 0.2}\nquant: {w_bits: 4}\n");
    }
  }
  const std::string& root() const { return folder_.path(); }
  Output compare(std::vector<std::string> words) const {
    words.insert(words.begin(), {"compare", "--root", root()});
    return run_here(words);
  }
  json as_json(std::vector<std::string> words) const {
    words.insert(words.end(), {"-f", "json"});
    const Output called = compare(words);
    EXPECT_EQ(called.code, 0) << called.err;
    return json::parse(called.out);
  }
  static json metric(const json& all, const std::string& name, const std::string& side = "B") {
    for (const json& result : all["results"]) {
      if (result["metric"] == name && result["side"] == side) return result;
    }
    return {};
  }

  TemporaryFolder folder_;
};

TEST_F(Compare, names_the_keys_that_differ_and_no_others) {
  add_both();
  const json all = as_json({"small", "large"});
  EXPECT_EQ(all["config"], (json::array({{{"key", "optim.lr"}, {"values", {"0.05", "0.2"}}},
                                         {{"key", "quant.w_bits"}, {"values", {"-", "4"}}}})));
  EXPECT_EQ(all["environment"], json::array());
  EXPECT_EQ(all["warnings"], json::array());
  EXPECT_EQ(all["sides"][1]["runs"].size(), 3u);
}

TEST_F(Compare, shows_both_values_where_the_runs_of_one_side_differ) {
  add("small", 1, 90, "log: {every_steps: 3}\n");
  add("small", 2, 90, "log: {every_steps: 5}\n");
  add("large", 1, 95, "log: {every_steps: 3}\n");
  EXPECT_EQ(as_json({"small", "large"})["config"],
            (json::array({{{"key", "log.every_steps"}, {"values", {"3 / 5", "3"}}}})));
}

TEST_F(Compare, shows_what_is_not_default_in_a_block_of_one_side) {
  add("dense", 1, 90, "optim: {lr: 0.1}\n");
  add("pruned", 1, 90,
      "optim: {lr: 0.1, weight_decay: 0.0}\n"
      "sparsity: {method: magnitude, target: 0.7, rounds: 5, block: [16, 1], end: 0.5}\n");
  const std::string text = compare({"dense", "pruned"}).out;
  EXPECT_NE(text.find("| sparsity.method | -   | magnitude |"), std::string::npos) << text;
  EXPECT_NE(text.find("| sparsity.target | -   | 0.7       |"), std::string::npos) << text;
  EXPECT_NE(text.find("| sparsity.end    | -   | 0.5       |"), std::string::npos) << text;
  EXPECT_EQ(text.find("sparsity.rounds"), std::string::npos) << text;
  EXPECT_NE(text.find("Not shown: 3 keys with the default value"), std::string::npos) << text;
  EXPECT_EQ(as_json({"dense", "pruned"})["config"].size(), 6u);  // programs get all
}

TEST_F(Compare, says_which_differences_are_more_than_noise) {
  add_both();
  const json all = as_json({"small", "large"});
  const json acc = metric(all, "acc");
  EXPECT_EQ(acc["first_n"], 3);
  EXPECT_NEAR(acc["first"].get<double>(), 90.2, 1e-9);
  EXPECT_NEAR(acc["first_std"].get<double>(), 0.1, 1e-9);
  EXPECT_NEAR(acc["mean_std"].get<double>(), 0.2, 1e-9);
  EXPECT_NEAR(acc["difference"].get<double>(), 5.2, 1e-9);
  EXPECT_NEAR(acc["percent"].get<double>(), 100 * 5.2 / 90.2, 1e-9);
  EXPECT_LT(acc["p"].get<double>(), 1e-3);
  EXPECT_LT(acc["low"].get<double>(), 5.2);
  EXPECT_GT(acc["low"].get<double>(), 4.5);
  EXPECT_EQ(acc["outcome"], "better");
  // Runs with equal seeds have equal times here, so the two sides do not differ.
  EXPECT_EQ(metric(all, "avg_forward")["outcome"], "within noise");
  EXPECT_EQ(metric(all, "avg_backward")["outcome"], "same");  // no deviation on either side
  // The two sides in the other order.
  EXPECT_EQ(metric(as_json({"large", "small"}), "acc")["outcome"], "worse");
}

TEST_F(Compare, says_that_one_run_tells_nothing_about_noise) {
  const std::string one = add("small", 1, 90, "optim: {lr: 0.05}\n");
  const std::string other = add("large", 1, 97, "optim: {lr: 0.2}\n");
  const json acc = metric(as_json({one, other}), "acc");
  EXPECT_EQ(acc["outcome"], "unknown");
  EXPECT_TRUE(acc["p"].is_null());
  EXPECT_EQ(acc["difference"], 7);
  EXPECT_NE(compare({one, other}).out.find("one run says nothing about noise"), std::string::npos);
}

TEST_F(Compare, corrects_for_several_sides) {
  add_both();
  for (int seed = 1; seed <= 3; ++seed) {
    add("third", seed, 90.1 + 0.15 * seed, "optim: {lr: 0.07}\n");
  }
  const json all = as_json({"small", "large", "third"});
  const json two = metric(as_json({"small", "third"}), "acc");
  const json b = metric(all, "acc", "B"), c = metric(all, "acc", "C");
  EXPECT_EQ(b["p_holm"], 2 * b["p"].get<double>());
  EXPECT_EQ(c["p"], two["p"]);
  EXPECT_EQ(c["p_holm"], c["p"]);  // the last step of Holm's method
  EXPECT_EQ(c["outcome"], "within noise");
  EXPECT_EQ(all["config"][0]["values"], (json{"0.05", "0.2", "0.07"}));
  EXPECT_NE(compare({"small", "large", "third"}).out.find("C against A:"), std::string::npos);
}

TEST_F(Compare, warns_when_machines_differ_or_were_busy) {
  add("small", 1, 90, "a: 1\n");
  std::string environment = kEnvironment;
  environment.replace(environment.find("one cpu"), 7, "a third");
  environment.replace(environment.find("0.50"), 4, "7.25");
  add("large", 1, 90, "a: 1\n", environment);
  const json all = as_json({"small", "large"});
  ASSERT_EQ(all["warnings"].size(), 2u) << all["warnings"];
  EXPECT_EQ(all["warnings"][0],
            "the machines differ (cpu): times are not comparable, accuracies are");
  EXPECT_EQ(all["warnings"][1],
            "B began on a busy machine (load 7.25, 2 threads): its times may be too long");
  EXPECT_EQ(all["environment"], (json::array({{{"key", "cpu"}, {"values", {"one cpu", "a third"}}},
                                              {{"key", "load"}, {"values", {"0.50", "7.25"}}}})));
  EXPECT_NE(compare({"small", "large", "-f", "csv"}).err.find("the machines differ"),
            std::string::npos);
}

TEST_F(Compare, a_side_is_the_newest_config_with_one_run_for_each_seed) {
  const std::string old = add("small", 1, 10, "optim: {lr: 9}\n");
  std::filesystem::rename(old, root() + "/small/2025-01-01_000000-s1");
  add("small", 1, 90, "optim: {lr: 0.05}\n");
  std::filesystem::copy(root() + "/small/2026-01-01_000000-s1",
                        root() + "/small/2026-01-01_000000-s1-2",
                        std::filesystem::copy_options::recursive);
  add("small", 2, 91, "optim: {lr: 0.05}\nlog: {every_steps: 3}\n");  // does not affect results
  add("large", 1, 95, "optim: {lr: 0.2}\n");
  const RunSide side = read_run_side("small", root());
  ASSERT_EQ(side.runs.size(), 2u);
  EXPECT_TRUE(side.runs[0].path.ends_with("-s1-2"));
  ASSERT_EQ(side.remarks.size(), 2u);
  EXPECT_NE(side.remarks[0].find("1 of 4 runs are left out, because their config is not"),
            std::string::npos)
      << side.remarks[0];
  EXPECT_NE(side.remarks[1].find("1 earlier run with the same seed is left out"),
            std::string::npos);
  // If the path of a run folder is given, the side has only this run, even if the parent folder
  // holds more runs.
  EXPECT_EQ(read_run_side(root() + "/small/2025-01-01_000000-s1", root()).runs.size(), 1u);
}

TEST_F(Compare, finds_names_in_the_root_and_rows_of_sweeps) {
  add_both();
  write_run(root() + "/study", {.name = "lr-0.1", .seed = 1});
  EXPECT_EQ(read_run_side("large", root()).runs.size(), 3u);
  EXPECT_EQ(read_run_side("lr-0.1", root()).runs.size(), 1u);
  EXPECT_EQ(read_run_side("study/lr-0.1", root()).runs.size(), 1u);
  EXPECT_EQ(read_run_side(root() + "/small", "elsewhere").runs.size(), 3u);
}

TEST_F(Compare, refuses_what_is_no_side) {
  add_both();
  Output called = compare({"small", "larg"});
  EXPECT_EQ(called.code, 6);
  EXPECT_NE(called.err.find("got 'larg', which is none of them; did you mean 'large'?"),
            std::string::npos)
      << called.err;
  called = compare({"small", root()});
  EXPECT_EQ(called.code, 2);
  EXPECT_NE(called.err.find("which holds 2 names: large, small"), std::string::npos) << called.err;
  called = compare({"small"});
  EXPECT_EQ(called.code, 2);
  EXPECT_NE(called.err.find("expected 2 to 26 sides to compare, got 1"), std::string::npos);
  write_text(root() + "/b.json", "{}");
  called = compare({"small", root() + "/b.json"});
  EXPECT_EQ(called.code, 2);
  EXPECT_NE(called.err.find("expected runs or benchmark files, not both"), std::string::npos);
  std::filesystem::remove(add("empty", 1, 1, "a: 1\n") + "/summary.json");
  called = compare({"small", "empty"});
  EXPECT_EQ(called.code, 6);
  EXPECT_NE(called.err.find("expected at least one run with a summary"), std::string::npos);
}

TEST_F(Compare, has_a_table_for_people_a_line_for_each_metric_in_csv_and_latex) {
  add_both();
  const std::string text = compare({"small", "large"}).out;
  EXPECT_NE(text.find("A: small (3 runs, seeds 1, 2, 3)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("| optim.lr     | 0.05 | 0.2 |"), std::string::npos) << text;
  EXPECT_NE(text.find("The environment is the same."), std::string::npos) << text;
  EXPECT_NE(text.find("90.20 ± 0.10"), std::string::npos) << text;
  EXPECT_NE(text.find("| +5.20 "), std::string::npos) << text;
  EXPECT_NE(text.find("| better "), std::string::npos) << text;
  const std::string csv = compare({"small", "large", "-f", "csv"}).out;
  EXPECT_TRUE(csv.starts_with(
      "side,metric,unit,first_n,first,first_std,n,mean,mean_std,difference,"
      "percent,low,high,p,p_holm,outcome,disturbed\nB,acc,%,3,90.2,0.1,3,95.4,0.2,"))
      << csv;
  const std::string latex = compare({"small", "large", "-f", "latex"}).out;
  EXPECT_NE(latex.find("acc (\\%) & 90.20 $\\pm$ 0.10"), std::string::npos) << latex;
}

TEST_F(Compare, fails_above_a_factor_of_the_time_of_a_step) {
  for (int seed = 1; seed <= 3; ++seed) {
    for (const bool slow : {false, true}) {
      const std::string run = add(slow ? "slow" : "fast", seed, 90, "a: 1\n");
      RunSummary summary;
      summary.seed = seed;
      summary.timed_steps = 9;
      summary.avg_step = (slow ? 0.024 : 0.020) + 1e-5 * seed;
      summary.avg_forward = (slow ? 0.016 : 0.010) + 1e-5 * seed;  // one part is not the step
      write_text(run + "/summary.json", to_json_text(summary));
    }
  }
  EXPECT_EQ(compare({"fast", "slow", "--fail-above", "1.3"}).code, 0);
  EXPECT_EQ(compare({"slow", "fast", "--fail-above", "1.1"}).code, 0);
  const Output called = compare({"fast", "slow", "--fail-above", "1.1"});
  EXPECT_EQ(called.code, 7);
  EXPECT_NE(called.err.find("regression: B: a step takes 1.2"), std::string::npos) << called.err;
  EXPECT_EQ(compare({"fast", "slow", "--fail-above", "-1"}).code, 2);
}

}  // namespace
}  // namespace convscope::testing
