// SPDX-License-Identifier: Apache-2.0
// sweep_table_test.cpp: the final table of a sweep.
#include "experiments/sweep/sweep_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/sweep/sweep_members.h"
#include "experiments/sweep/sweep_status.h"
#include "tests/support/temporary_folder.h"

namespace convscope {
namespace {

SweepPlan small_plan() {
  return parse_sweep_text(
      "data: {set: synthetic_digits, batch_size: 16}\nmodel: {type: lenet5}\n"
      "sweep:\n  members: [{name: a, reference: {acc: 58.07}}, {name: b}]\n  seeds: [1, 2, 3]\n",
      "s.yaml");
}

SweepOutcome done(double acc, double forward) {
  SweepOutcome out;
  out.state.progress = MemberProgress::done;
  RunSummary& s = out.state.summary.emplace();
  s.acc = acc;
  s.avg_forward = forward;
  s.avg_backward = 0.5;
  s.avg_forward_mem = 3;
  s.timed_steps = 10;
  s.kernel_size = "5";
  s.epochs = s.epochs_planned = 4;
  s.execution = "f32 dense";
  return out;
}

// Members run seed by seed: a b a b a b.
std::vector<SweepOutcome> all_done() {
  return {done(90, 0.1), done(50, 0.2), done(92, 0.2), done(50, 0.2), done(97, 0.3), done(50, 0.2)};
}

// A member that has not begun has no config in the sweep's folder, but its number of epochs is
// shown.
TEST(SweepStatus, shows_the_epochs_of_members_that_are_still_to_do) {
  const testing::TemporaryFolder folder;
  SweepMembers members;
  members.plan = parse_sweep_text(
      "data: {set: synthetic_digits}\nmodel: {type: lenet5}\ntrain: {epochs: 3}\n"
      "sweep: {members: [{name: a}, {name: b, train.epochs: 2}]}\n",
      "s.yaml");
  write_sweep_members(folder.path(), members);
  const TextTable table = sweep_status(folder.path()).table;
  const auto at = std::ranges::find(table.columns, "epochs", &TextTable::Column::name);
  const auto column = static_cast<std::size_t>(at - table.columns.begin());
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(cell_text(table.rows[0].at(column), 0), "3");
  EXPECT_EQ(cell_text(table.rows[1].at(column), 0), "2");
}

TEST(SweepTable, has_mean_and_deviation_over_the_seeds) {
  // Expected values of row a: accuracy 93 with standard deviation sqrt((9 + 1 + 16) / 2) =
  // sqrt(13), and forward time 0.2 with standard deviation 0.1.
  EXPECT_EQ(to_csv(sweep_table(small_plan(), all_done())),
            "name,batch_size,avg_forward,avg_forward_std,avg_backward,avg_backward_std,"
            "avg_forward_mem,avg_backward_mem,kernel_size,acc,acc_std,acc_reference,seeds,"
            "execution,epochs,jobs,state,error,avg_forward_mem_std,avg_backward_mem_std,step,"
            "avg_inference,avg_inference_std,weight_bytes,weight_bytes_std,avg_forward_median,"
            "avg_forward_mad,avg_backward_median,avg_backward_mad,avg_inference_median,"
            "avg_inference_mad,busy,test_iou,test_iou_std\n"
            "a,16,0.2,0.1,0.5,0,3,0,5,93,3.60555128,58.07,3,f32 dense,4,1,done,,0,0,,,,,,0.2,0.1,"
            "0.5,0,,,0,,\n"
            "b,16,0.2,0,0.5,0,3,0,5,50,0,,3,f32 dense,4,1,done,,0,0,,,,,,0.2,0,0.5,0,,,0,,\n");
}

// One seed ran on a busy machine. Its time changes the mean and the standard deviation, but not the
// median.
TEST(SweepTable, for_people_has_medians_of_times_and_marks_disturbed_seeds) {
  std::vector<SweepOutcome> outcomes = all_done();
  const double forward[] = {0.00098, 0.00295, 0.00099};
  for (std::size_t i = 0; i < 3; ++i) outcomes[2 * i].state.summary->avg_forward = forward[i];
  EXPECT_EQ(sweep_markdown(small_plan(), outcomes).find("busy"), std::string::npos);
  RunSummary& summary = *outcomes[2].state.summary;
  summary.id = "second";
  summary.threads = summary.cores = 2;
  summary.cores_of_others = 1.2;
  const std::string text = sweep_markdown(small_plan(), outcomes);
  EXPECT_NE(text.find("| 0.0009900 ± 0.0000100 "), std::string::npos) << text;
  EXPECT_NE(text.find("| 93.00 ± 3.61 "), std::string::npos) << text;
  EXPECT_NE(text.find("of times the median ± the median distance"), std::string::npos) << text;
  EXPECT_NE(text.find("| 1 of 3 |"), std::string::npos) << text;
  EXPECT_NE(text.find("busy: other programs used the cores in 1 run (second)"), std::string::npos)
      << text;
  const nlohmann::json rows = nlohmann::json::parse(to_json(sweep_table(small_plan(), outcomes)));
  EXPECT_DOUBLE_EQ(rows[0]["avg_forward_median"].get<double>(), 0.00099);
  EXPECT_EQ(rows[0]["busy"], 1);
  EXPECT_EQ(rows[1]["busy"], 0);
}

// Runs of earlier versions lack the inference time and the stored bytes. If all runs lack them, the
// printed table has no such columns.
TEST(SweepTable, has_the_time_of_inference_and_the_stored_bytes_where_runs_know_them) {
  std::vector<SweepOutcome> outcomes = all_done();
  const double seconds[] = {0.001, 0.002, 0.003};
  for (std::size_t i = 0; i < 3; ++i) {
    outcomes[2 * i].state.summary->avg_inference = seconds[i];
    outcomes[2 * i].state.summary->weight_bytes = 1000;
  }
  const nlohmann::json rows = nlohmann::json::parse(to_json(sweep_table(small_plan(), outcomes)));
  EXPECT_DOUBLE_EQ(rows[0]["avg_inference"].get<double>(), 0.002);
  EXPECT_DOUBLE_EQ(rows[0]["avg_inference_std"].get<double>(), 0.001);
  EXPECT_EQ(rows[0]["weight_bytes"], 1000);
  EXPECT_TRUE(rows[1]["avg_inference"].is_null());
  const std::string text = sweep_markdown(small_plan(), outcomes);
  EXPECT_NE(text.find("| avg_inference       | weight_bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("| 0.002000 ± 0.001000 |"), std::string::npos) << text;
}

TEST(SweepTable, for_people_has_plus_minus_and_no_column_without_a_message) {
  const std::string text = sweep_markdown(small_plan(), all_done());
  EXPECT_TRUE(text.starts_with(
      "| name | batch_size | avg_forward     | avg_backward    | avg_forward_mem | "
      "avg_backward_mem | kernel_size | acc          | acc_reference | seeds | execution | "
      "epochs |\n"
      "| ---- | ---------- | --------------- | --------------- | --------------- | "
      "---------------- | ----------- | ------------ | ------------- | ----- | --------- | "
      "------ |\n"
      "| a    | 16         | 0.2000 ± 0.1000 | 0.5000 ± 0.0000 | 3.000 ± 0.000   | "
      "0.000 ± 0.000    | 5           | 93.00 ± 3.61 | 58.07         | 3     | f32 dense | "
      "4      |\n"))
      << text;
  EXPECT_EQ(text.find("members at the same time"), std::string::npos);
}

SweepPlan grid_plan() {
  return parse_sweep_text(
      "data: {set: synthetic_digits, batch_size: 16}\nmodel: {type: lenet5}\n"
      "sweep:\n  members: [{name: a, conv.algorithm: direct}, {name: b}]\n"
      "  grid: {optim.lr: [0.1, 0.25], train.epochs: [4]}\n",
      "s.yaml");
}

TEST(SweepTable, has_a_column_for_each_axis) {
  const SweepPlan plan = grid_plan();
  ASSERT_EQ(plan.rows.size(), 4u);
  const std::vector<SweepOutcome> outcomes(4, done(90, 0.1));
  const TextTable reading = sweep_reading_table(plan, outcomes);
  // All rows set the two keys of the grid, but only optim.lr differs. Only row `a` sets
  // conv.algorithm.
  EXPECT_EQ(reading.columns[0].name, "name");
  EXPECT_EQ(reading.columns[1].name, "optim.lr");
  EXPECT_EQ(reading.columns[2].name, "batch_size");
  EXPECT_EQ(reading.rows[0][1], TableCell(0.1));
  EXPECT_EQ(reading.rows[1][1], TableCell(0.25));
  // JSON and CSV contain every key that a row sets, after all other columns.
  const nlohmann::json rows = nlohmann::json::parse(to_json(sweep_table(plan, outcomes)));
  EXPECT_EQ(rows[1]["optim.lr"], 0.25);
  EXPECT_EQ(rows[1]["train.epochs"], 4);
  EXPECT_EQ(rows[0]["conv.algorithm"], "direct");
  EXPECT_TRUE(rows[2]["conv.algorithm"].is_null());
  const std::string csv = to_csv(sweep_table(plan, outcomes));
  EXPECT_NE(csv.find(",state,error,avg_forward_mem_std,avg_backward_mem_std,step,avg_inference,"
                     "avg_inference_std,weight_bytes,weight_bytes_std,conv.algorithm,optim.lr,"
                     "train.epochs,avg_forward_median,"),
            std::string::npos)
      << csv;
}

TEST(SweepTable, names_how_a_step_runs_where_the_rows_differ_in_it) {
  const SweepPlan plan = grid_plan();
  std::vector<SweepOutcome> outcomes(4, done(90, 0.1));
  const auto has_step = [&] {
    return std::ranges::count(sweep_reading_table(plan, outcomes).columns, "step",
                              &TextTable::Column::name) > 0;
  };
  for (SweepOutcome& outcome : outcomes) outcome.state.summary->step = "planned";
  EXPECT_FALSE(has_step());
  outcomes[2].state.summary->step = "dynamic";
  EXPECT_TRUE(has_step());
}

TEST(SweepTable, says_when_members_ran_side_by_side) {
  std::vector<SweepOutcome> outcomes = all_done();
  outcomes[2].jobs = 4;
  const std::string text = sweep_markdown(small_plan(), outcomes);
  EXPECT_NE(text.find("up to 4 members at the same time"), std::string::npos) << text;
  EXPECT_NE(text.find("| jobs"), std::string::npos) << text;
}

TEST(SweepTable, shows_failed_and_missing_members_and_counts_the_seeds_that_it_has) {
  std::vector<SweepOutcome> outcomes = all_done();
  outcomes[2] = {};
  outcomes[2].state.progress = MemberProgress::failed;
  outcomes[2].error = "[train] expected a finite loss, got nan";
  outcomes[3] = outcomes[5] = {};
  const nlohmann::json rows = nlohmann::json::parse(to_json(sweep_table(small_plan(), outcomes)));
  EXPECT_EQ(rows[0]["state"], "failed");
  EXPECT_EQ(rows[0]["seeds"], 2);
  EXPECT_EQ(rows[0]["acc"], 93.5);
  EXPECT_EQ(rows[0]["error"], "seed 2: [train] expected a finite loss, got nan");
  EXPECT_EQ(rows[1]["state"], "partial");
  EXPECT_EQ(rows[1]["seeds"], 1);
  EXPECT_TRUE(rows[1]["acc_std"].is_null());  // a single value has no deviation
  outcomes[1] = {};
  EXPECT_NE(to_csv(sweep_table(small_plan(), outcomes))
                .find("b,16,,,,,,,,,,,0,,,,missing,,,,,,,,,,,,,,,,,\n"),
            std::string::npos);
}

TEST(SweepTable, keeps_the_numbers_of_a_run_that_missed_its_gate) {
  std::vector<SweepOutcome> outcomes = all_done();
  outcomes[0].state.progress = MemberProgress::failed;
  outcomes[0].error = "[expect] expected more";
  const nlohmann::json rows = nlohmann::json::parse(to_json(sweep_table(small_plan(), outcomes)));
  EXPECT_EQ(rows[0]["acc"], 93);
  EXPECT_EQ(rows[0]["seeds"], 3);
  EXPECT_EQ(rows[0]["state"], "failed");
}

TEST(SweepTable, leaves_out_the_numbers_of_a_run_that_failed_on_its_way) {
  std::vector<SweepOutcome> outcomes = all_done();
  outcomes[0].state.progress = MemberProgress::failed;
  outcomes[0].error = "[train] expected a finite loss";
  outcomes[0].state.summary->epochs = 3;  // of 4
  const nlohmann::json rows = nlohmann::json::parse(to_json(sweep_table(small_plan(), outcomes)));
  EXPECT_EQ(rows[0]["acc"], 94.5);  // of 92 and 97
  EXPECT_EQ(rows[0]["seeds"], 2);
}

TEST(MeanStdText, has_the_median_and_the_median_distance_too) {
  const MeanStd odd = mean_std({3, 1, 100});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.mad, 2);
  EXPECT_EQ(mean_std_text(as_median(odd)), "3.000 ± 2.000");
  const MeanStd even = mean_std({4, 1, 2, 100});
  EXPECT_EQ(even.median, 3);
  EXPECT_EQ(even.mad, 1.5);
  EXPECT_EQ(mean_std_text(as_median(mean_std({}))), "-");
}

TEST(MeanStdText, shows_both_with_the_same_decimals) {
  EXPECT_EQ(mean_std_text(mean_std({})), "-");
  EXPECT_EQ(mean_std_text(mean_std({0.0036141})), "0.003614");
  EXPECT_EQ(mean_std_text(mean_std({0.0036, 0.0038})), "0.003700 ± 0.000141");
  EXPECT_EQ(mean_std_text(mean_std({1234, 1236})), "1235 ± 1");
  EXPECT_EQ(mean_std_text(mean_std({0, 0})), "0.000 ± 0.000");
}

}  // namespace
}  // namespace convscope
