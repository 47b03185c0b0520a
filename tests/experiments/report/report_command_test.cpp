// SPDX-License-Identifier: Apache-2.0
// report_command_test.cpp: `convscope report` with config keys, filters, groups and formats.
#include <nlohmann/json.hpp>

#include "experiments/report/table/row_groups.h"
#include "experiments/run_folder/run_search.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/report/run_here.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {
namespace {

using nlohmann::json;

class Report : public ::testing::Test {
 protected:
  Report() {
    for (int seed = 1; seed <= 2; ++seed) {
      write_run(root(), {.name = "small", .seed = seed, .test_acc = 89.0 + seed, .config = kSmall});
      write_run(root(), {.name = "large", .seed = seed, .test_acc = 94.0 + seed, .config = kLarge});
    }
  }
  const std::string& root() const { return folder_.path(); }
  Output report(std::vector<std::string> more) const {
    std::vector<std::string> words = {"report", root()};
    words.insert(words.end(), more.begin(), more.end());
    return run_here(words);
  }
  json rows(std::vector<std::string> more) const {
    more.insert(more.end(), {"-f", "json"});
    const Output called = report(more);
    EXPECT_EQ(called.code, 0) << called.err;
    return json::parse(called.out);
  }

  static constexpr const char* kSmall =
      "optim:\n  lr: 0.05\n  nesterov: false\nmodel:\n  widths: [6, 16]\n";
  static constexpr const char* kLarge =
      "optim:\n  lr: 0.2\n  nesterov: true\nmodel:\n  widths: [6, 16]\nquant:\n  w_bits: 4\n";
  TemporaryFolder folder_;
};

TEST_F(Report, shows_config_keys_as_columns_of_their_type) {
  const json all = rows({"--columns", "name,optim.lr,optim.nesterov,model.widths,quant.w_bits"});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0], (json{{"name", "large"},
                          {"optim.lr", 0.2},
                          {"optim.nesterov", true},
                          {"model.widths", "[6, 16]"},
                          {"quant.w_bits", 4}}));
  EXPECT_EQ(all[3]["optim.lr"], 0.05);
  EXPECT_TRUE(all[3]["quant.w_bits"].is_null());
  EXPECT_NE(report({"-f", "csv", "--columns", "id,optim.lr"}).out.find("-s1,0.2\n"),
            std::string::npos);
}

TEST_F(Report, adds_columns_to_the_usual_ones) {
  const std::string usual = report({}).out;
  const Output added = report({"--columns", "+optim.lr,seed"});
  EXPECT_EQ(added.code, 0) << added.err;
  const std::string head = added.out.substr(0, added.out.find('\n'));
  EXPECT_NE(head.find("| id "), std::string::npos) << head;
  EXPECT_NE(head.find("| optim.lr | seed |"), std::string::npos) << head;
  // By default the table shows each config key that differs between runs as a column after the
  // name.
  EXPECT_NE(usual.find("| name  | optim.lr | optim.nesterov | batch_size |"), std::string::npos);
  EXPECT_EQ(usual.find("| seed |"), std::string::npos);
  EXPECT_EQ(report({"--columns", "optim.lr,+seed"}).out, added.out);
}

TEST_F(Report, names_the_nearest_column_or_key_for_an_unknown_key) {
  const Output called = report({"--columns", "id,optim.lrr"});
  EXPECT_EQ(called.code, 2);
  EXPECT_NE(called.err.find("got 'optim.lrr'; did you mean 'optim.lr'?"), std::string::npos)
      << called.err;
  EXPECT_NE(report({"--sort", "avg_forwrad"}).err.find("did you mean 'avg_forward'?"),
            std::string::npos);
  // Every possible config key is known, whatever these runs contain.
  EXPECT_EQ(report({"--columns", "id,sparsity.target"}).code, 0);
  EXPECT_EQ(report({"--group", "optim.lrr"}).code, 2);
}

TEST_F(Report, sorts_by_a_config_key) {
  EXPECT_EQ(rows({"--sort", "optim.lr"})[0]["name"], "small");
  EXPECT_EQ(rows({"--sort", "optim.lr", "--descending"})[0]["name"], "large");
}

TEST_F(Report, filters_and_says_when_nothing_is_left) {
  EXPECT_EQ(rows({"--filter", "optim.lr<0.1"}).size(), 2u);
  EXPECT_EQ(rows({"--filter", "optim.lr<0.1", "--filter", "seed=2"}).size(), 1u);
  const Output none = report({"--filter", "acc>99"});
  EXPECT_EQ(none.code, 0);
  EXPECT_NE(none.err.find("none of the 4 runs fits"), std::string::npos) << none.err;
  EXPECT_EQ(rows({"--tag", "paper"}).size(), 0u);
}

TEST_F(Report, an_option_takes_one_word_so_that_a_folder_may_follow) {
  for (const auto& [option, word] : std::map<std::string, std::string>{
           {"--columns", "id,acc"}, {"--filter", "seed=1"}, {"--group", "name"}, {"--tag", "a"}}) {
    const Output called = run_here({"report", option, word, root()});
    EXPECT_EQ(called.code, 0) << option << ": " << called.err;
  }
}

TEST_F(Report, groups_by_keys_with_mean_and_deviation) {
  const Output people = report({"--group", "optim.lr", "--columns", "acc,name,seed"});
  EXPECT_EQ(people.code, 0) << people.err;
  EXPECT_NE(people.out.find("| optim.lr | n   | acc          | name  | seed  |"), std::string::npos)
      << people.out;
  EXPECT_NE(people.out.find("| 0.2      | 2   | 95.50 ± 0.71 | large | 1 / 2 |"), std::string::npos)
      << people.out;
  EXPECT_EQ(people.err, "");
  const json all = rows({"--group", "optim.lr", "--columns", "acc", "--sort", "acc"});
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["optim.lr"], 0.05);
  EXPECT_EQ(all[0]["n"], 2);
  EXPECT_EQ(all[0]["acc"], 90.5);
  EXPECT_NEAR(all[0]["acc_std"].get<double>(), std::sqrt(0.5), 1e-12);
  // Without --columns, the table has the measured columns.
  EXPECT_TRUE(rows({"--group", "optim.lr"})[0].contains("avg_forward_std"));
  EXPECT_FALSE(rows({"--group", "optim.lr"})[0].contains("device"));
}

TEST_F(Report, shows_the_median_time_of_a_group_and_its_disturbed_runs) {
  const std::vector<std::string> runs = find_runs(root());
  ASSERT_EQ(runs.size(), 4u);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    RunSummary summary = read_run_row(runs[i]).summary;
    summary.name = "one";
    summary.avg_forward = i == 1 ? 0.00295 : 0.00098 + 1e-5 * static_cast<double>(i);
    summary.threads = summary.cores = 2;
    summary.cores_of_others = i == 1 ? 1.2 : 0.1;
    write_text(runs[i] + "/summary.json", to_json_text(summary));
  }
  const Output people = report({"--group", "name", "--columns", "avg_forward,acc"});
  EXPECT_NE(people.out.find("| 0.001005 ± 0.000015 |"), std::string::npos) << people.out;
  EXPECT_NE(people.out.find("| 1 of 4 |"), std::string::npos) << people.out;
  EXPECT_NE(people.out.find("for times the median"), std::string::npos) << people.out;
  EXPECT_NE(people.err.find("other programs used the cores in 1 of 4 runs"), std::string::npos)
      << people.err;
  const json all = rows({"--group", "name", "--columns", "avg_forward"});
  EXPECT_NEAR(all[0]["avg_forward_median"].get<double>(), 0.001005, 1e-12);
  EXPECT_NEAR(all[0]["avg_forward"].get<double>(), (0.00098 + 0.00295 + 0.001 + 0.00101) / 4,
              1e-12);
  const Output alone = report({});
  EXPECT_NE(alone.out.find(" busy "), std::string::npos) << alone.out;
  EXPECT_EQ(rows({"--filter", "busy!=yes"}).size(), 3u);
}

TEST_F(Report, says_when_a_group_mixes_configs) {
  const Output called = report({"--group", "data"});
  EXPECT_EQ(called.code, 0);
  EXPECT_NE(called.err.find("differ in more than the seed: optim.lr, optim.nesterov, quant.w_bits"),
            std::string::npos)
      << called.err;
  EXPECT_EQ(report({"--group", "acc"}).code, 2);
}

TEST_F(Report, shows_no_deviation_for_one_run_in_a_group) {
  const json all = rows({"--group", "seed,optim.lr", "--columns", "acc"});
  ASSERT_EQ(all.size(), 4u);
  EXPECT_TRUE(all[0]["acc_std"].is_null());
  EXPECT_EQ(report({"--group", "seed,optim.lr", "--columns", "acc"}).out.find("± 0"),
            std::string::npos);
}

TEST_F(Report, has_a_legend_of_the_columns_that_are_there) {
  const std::string text = report({"--columns", "id,acc"}).out;
  EXPECT_NE(text.find("\n- acc: % of the test images"), std::string::npos) << text;
  EXPECT_EQ(text.find("avg_forward"), std::string::npos) << text;
  EXPECT_EQ(report({"--columns", "id,state"}).out.find("\n- "), std::string::npos);
  EXPECT_EQ(report({"-f", "csv"}).out.find("\n- "), std::string::npos);
}

TEST_F(Report, keeps_the_columns_that_programs_know_in_their_order) {
  const std::string csv = report({"-f", "csv"}).out;
  EXPECT_EQ(csv.substr(0, csv.find('\n')),
            "id,name,batch_size,avg_forward,avg_backward,avg_forward_mem,avg_backward_mem,"
            "kernel_size,acc,best_acc,execution,algorithm,device,precision,threads,isa,"
            "images_per_s,epochs,seed,params,avg_step,phases,peak_workspace,data,model,train_loss,"
            "test_loss,val_acc,seconds,state,reason,path,step,tags,note,avg_inference,"
            "weight_bytes,ranks,avg_exchange,busy,cores_of_others,test_top5,"
            "test_iou");
}

TEST_F(Report, writes_latex) {
  const Output called = report({"--group", "name", "--columns", "acc,avg_forward", "-f", "latex"});
  EXPECT_EQ(called.code, 0) << called.err;
  EXPECT_NE(called.out.find("\\toprule\nname & n & acc (\\%) & avg\\_forward (s) \\\\\n"),
            std::string::npos)
      << called.out;
  EXPECT_NE(called.out.find("large & 2 & $95.50 \\pm 0.71$"), std::string::npos) << called.out;
}

TEST_F(Report, is_complete_where_no_terminal_reads_it) {
  const std::string text = report({}).out;
  // Keys with different values are columns. Values that all rows share are listed below the table.
  for (const char* name : {"| batch_size", "| avg_backward_mem", "| kernel_size", "| optim.lr",
                           "images_per_s 0", "device -", "threads 0"}) {
    EXPECT_NE(text.find(name), std::string::npos) << name << "\n" << text;
  }
  EXPECT_NE(text.find("\nall rows: "), std::string::npos) << text;
}

TEST_F(Report, a_broken_config_costs_its_keys_only) {
  const std::string run = write_run(root(), {.name = "broken", .seed = 1, .config = "a: [1\n"});
  const Output called = report({"--columns", "name,optim.lr", "-f", "csv"});
  EXPECT_EQ(called.code, 0) << called.err;
  EXPECT_NE(called.out.find("broken,\n"), std::string::npos) << called.out;
  EXPECT_NE(called.err.find(run + "/config.yaml:"), std::string::npos) << called.err;
  // The program does not read the damaged config, because no column, filter or sort key needs it.
  EXPECT_EQ(report({"-f", "csv"}).err, "");
  EXPECT_EQ(report({"--columns", "name,acc", "--filter", "acc>0", "--sort", "seed"}).err, "");
}

TEST_F(Report, says_who_reads_the_file_of_a_benchmark) {
  const std::string file = root() + "/bench.json";
  write_text(file, "{}");
  const Output called = run_here({"report", file});
  EXPECT_EQ(called.code, 6);
  EXPECT_NE(called.err.find("bench.json, which is not a folder; convscope plot and compare read "),
            std::string::npos)
      << called.err;
}

TEST_F(Report, names_how_a_step_runs_where_the_runs_differ_in_it) {
  RunRow planned, dynamic;
  planned.state = dynamic.state = "DONE";
  planned.summary.step = "planned";
  dynamic.summary.step = "dynamic";
  const auto has_step = [](const std::vector<RunRow>& all) {
    return std::ranges::count(reading_columns(all), "step") > 0;
  };
  EXPECT_TRUE(has_step({planned, dynamic}));
  EXPECT_FALSE(has_step({planned, planned}));
  EXPECT_FALSE(has_step({}));
}

}  // namespace
}  // namespace convscope::testing
