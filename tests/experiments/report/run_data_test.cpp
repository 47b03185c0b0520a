// SPDX-License-Identifier: Apache-2.0
// run_data_test.cpp: reads the files of a run folder, intact and broken.
#include "experiments/report/run_data.h"

#include <cmath>

#include "experiments/report/run_groups.h"
#include "experiments/report/weight_size.h"
#include "framework/io/safetensors.h"
#include "tests/experiments/report/run_folders.h"
#include "tests/experiments/training_fixture.h"

namespace convscope::testing {
namespace {

TEST(CsvTable, reads_quoted_cells_empty_cells_and_windows_line_ends) {
  const CsvTable table = parse_csv("a,b\r\n\"x, \"\"y\"\"\n z\",1.5\r\nplain,\r\n", "t.csv", {"a"});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.text(0, "a"), "x, \"y\"\n z");
  EXPECT_EQ(table.number(0, "b"), 1.5);
  EXPECT_TRUE(std::isnan(table.number(1, "b")));
  EXPECT_TRUE(std::isnan(table.number(1, "no such column")));
  EXPECT_TRUE(table.problems.empty());
}

TEST(CsvTable, a_broken_line_costs_that_line_only_and_is_named) {
  const CsvTable table = parse_csv("epoch,loss\n1,2\n2\n3,oops\n4,1,1\n5,0.5\n6,0.", "e.csv");
  EXPECT_EQ(table.numbers("epoch"), (std::vector<double>{1, 5}));
  ASSERT_EQ(table.problems.size(), 4u);
  EXPECT_EQ(table.problems[0], "e.csv:3: expected 2 cells, got 1; the line is left out");
  EXPECT_EQ(table.problems[1],
            "e.csv:4: expected a number in column loss, got 'oops'; the line is left out");
  EXPECT_EQ(table.problems[3], "e.csv: 1 more lines are left out");
}

TEST(CsvTable, any_bytes_are_read_without_an_exception) {
  for (const std::string& text : {std::string(), std::string("\n\n\n"), std::string("\""),
                                  std::string("a\n\"b"), std::string("\0\xff,\n1", 5)}) {
    EXPECT_NO_THROW(parse_csv(text, "t.csv"));
  }
}

TEST(RunData, layers_are_read_with_and_without_the_column_that_older_runs_lack) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {.seed = 1});
  const std::string old_head =
      "layer,kind,output,params,kernel,forward,backward_data,backward_weight";
  write_text(folder + "/layers.csv", old_head + "\nc1,conv2d,64x6x28x28,156,5,fft,fft,fft\n");
  EXPECT_EQ(read_run(folder).layers.text(0, "forward"), "fft");
  EXPECT_TRUE(read_run(folder).problems.empty());
  write_text(folder + "/layers.csv", old_head +
                                         ",step\nc1,conv2d,64x6x28x28,156,5,"
                                         "lanes_chain: c1+c2,-,lanes_chain: c1+c2,planned\n"
                                         "f1,flatten,64x400,0,,,,,planned\n");
  const RunData run = read_run(folder);
  EXPECT_TRUE(run.problems.empty());
  ASSERT_EQ(run.layers.rows.size(), 2u);
  EXPECT_EQ(run.layers.text(0, "backward_data"), "-");
  EXPECT_EQ(run.layers.text(1, "step"), "planned");
}

TEST(RunData, reads_what_a_folder_has_and_names_what_is_broken) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {.seed = 3});
  EXPECT_TRUE(read_run(folder).problems.empty());
  EXPECT_EQ(read_run(folder).config.at("data.batch_size"), "64");
  EXPECT_EQ(read_run(folder).steps_per_epoch(), 10);
  write_text(folder + "/metrics.jsonl",
             "{\"step\":1,\"split\":\"train\",\"loss\":2}\n{broken\n[]\n");
  write_text(folder + "/config.yaml", "a: [1, {b: 2}\n: :");
  write_text(folder + "/summary.json", "{\"id\": 3}");
  write_text(folder + "/epochs.csv", "epoch,step\n1,x\n");
  const RunData run = read_run(folder);
  EXPECT_EQ(run.train.size(), 1u);
  EXPECT_TRUE(std::isnan(run.train[0].accuracy));
  EXPECT_FALSE(run.summary.has_value());
  EXPECT_EQ(run.name, "lenet");
  ASSERT_EQ(run.problems.size(), 4u);
  EXPECT_NE(run.problems[0].find("config.yaml"), std::string::npos);
  EXPECT_NE(run.problems[1].find("summary.json"), std::string::npos);
  EXPECT_NE(run.problems[2].find("metrics.jsonl:2"), std::string::npos);
  EXPECT_NE(run.problems[3].find("epochs.csv:2"), std::string::npos);
  EXPECT_NO_THROW(read_run(root.path() + "/nothing"));
}

TEST(RunData, reads_a_config_within_the_bounds_of_the_loader) {
  const TemporaryFolder root;
  // The YAML text has ten lists of ten aliases each, which would expand to ten thousand million
  // values.
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i <= 9; ++i) {
    bomb += cat("a", i, ": &a", i, " [");
    for (int k = 0; k < 10; ++k) bomb += cat(k == 0 ? "" : ", ", "*a", i - 1);
    bomb += "]\n";
  }
  const std::string folder = write_run(root.path(), {.config = bomb});
  const RunData run = read_run(folder);
  EXPECT_TRUE(run.config.empty());
  ASSERT_EQ(run.problems.size(), 1u);
  EXPECT_TRUE(run.problems[0].starts_with("config.yaml:3:5: error: expected no anchor"))
      << run.problems[0];
  // A list is a single config value, so a label shows it as one text.
  const std::string other =
      write_run(root.path(), {.name = "b", .config = "model: {widths: [6, 16]}\nquant: null\n"});
  EXPECT_EQ(read_run(other).config.at("model.widths"), "[6, 16]");
  EXPECT_FALSE(read_run(other).config.contains("quant"));
}

TEST(RunGroups, the_mean_and_deviation_are_those_of_the_sample) {
  const Spread spread = spread_of({1, 2, std::nan(""), 6});
  EXPECT_EQ(spread.count, 3);
  EXPECT_EQ(spread.mean, 3);
  EXPECT_NEAR(spread.std, std::sqrt((4 + 1 + 9) / 2.0), 1e-12);
  EXPECT_EQ(spread_of({5}).std, 0);
  EXPECT_TRUE(std::isnan(spread_of({}).mean));
  EXPECT_EQ(spread_of({0.1 + 0.2, 0.3}).std, 0);  // equal except for rounding
}

RunSet groups_of(const std::vector<std::string>& folders) {
  std::vector<RunData> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  return group_runs(std::move(runs));
}

TEST(RunGroups, runs_that_differ_in_the_seed_only_belong_together) {
  const TemporaryFolder root;
  const RunSet set = groups_of({write_run(root.path(), {.seed = 1, .test_acc = 90}),
                                write_run(root.path(), {.seed = 2, .test_acc = 94}),
                                write_run(root.path(), {.name = "other", .seed = 1})});
  ASSERT_EQ(set.groups.size(), 2u);
  EXPECT_EQ(set.groups[0].label, "lenet");
  const Spread acc = set.groups[0].summary_spread([](const RunSummary& s) { return *s.acc; });
  EXPECT_EQ(acc.mean, 92);
  EXPECT_NEAR(acc.std, std::sqrt(8.0), 1e-12);
  EXPECT_EQ(set.groups[1].label, "other");
  EXPECT_TRUE(set.remarks.empty());
}

TEST(RunGroups, a_name_that_carries_the_seed_is_the_same_name) {
  const TemporaryFolder root;
  const RunSet set = groups_of({write_run(root.path(), {.name = "lenet-s1", .seed = 1}),
                                write_run(root.path(), {.name = "lenet-s2", .seed = 2})});
  ASSERT_EQ(set.groups.size(), 1u);
  EXPECT_EQ(set.groups[0].label, "lenet");
}

TEST(RunGroups, groups_of_one_name_are_told_apart_by_what_differs) {
  const TemporaryFolder root;
  const std::string a = root.path() + "/a", b = root.path() + "/b";
  const RunSet set = groups_of(
      {write_run(a, {.config = "data: {batch_size: 8}\noptim: {lr: 0.1}\nlog: {every_steps: 5}\n"}),
       write_run(b, {.config = "data: {batch_size: 64}\noptim: {lr: 0.1}\n"})});
  ASSERT_EQ(set.groups.size(), 2u);
  EXPECT_EQ(set.groups[0].label, "lenet data.batch_size=8");
  EXPECT_EQ(set.groups[1].label, "lenet data.batch_size=64");
}

TEST(RunGroups, a_block_that_one_of_them_has_is_named_without_its_defaults) {
  const TemporaryFolder root;
  const std::string a = root.path() + "/a", b = root.path() + "/b";
  const RunSet set = groups_of(
      {write_run(a, {.config = "data: {batch_size: 8}\n"}),
       write_run(b, {.config = "data: {batch_size: 8}\nquant: {method: lsq, w_bits: 4, a_bits: 8, "
                               "first_last_bits: 8, lr_scale: 1.0}\n"})});
  ASSERT_EQ(set.groups.size(), 2u);
  EXPECT_EQ(set.groups[0].label, "lenet");
  EXPECT_EQ(set.groups[1].label, "lenet quant.method=lsq quant.w_bits=4");
}

TEST(RunGroups, count_the_later_of_two_runs_with_one_config_and_seed) {
  const TemporaryFolder root;
  const std::string first = write_run(root.path() + "/1", {.test_acc = 80});
  const std::string second = write_run(root.path() + "/2", {.test_acc = 85});
  RunSet set = groups_of({first, second});
  ASSERT_EQ(set.groups.size(), 1u);
  ASSERT_EQ(set.groups[0].runs.size(), 1u);
  EXPECT_EQ(set.groups[0].runs[0].path, second);
  ASSERT_EQ(set.remarks.size(), 1u);
  EXPECT_TRUE(set.remarks[0].starts_with(first)) << set.remarks[0];
  // A run without results does not replace an earlier run of the same seed that has results.
  write_text(second + "/epochs.csv", "");
  set = groups_of({first, second});
  EXPECT_EQ(set.groups[0].runs[0].path, first);
  EXPECT_TRUE(set.remarks[0].starts_with(second)) << set.remarks[0];
}

TEST(WeightSize, counts_what_is_stored_and_what_bits_and_zeros_would_need) {
  const TemporaryFolder root;
  const std::string folder = write_run(root.path(), {});
  EXPECT_TRUE(std::isnan(weight_size(read_run(folder)).stored_bytes));
  std::filesystem::create_directories(folder + "/ckpt");
  write_safetensors(folder + "/ckpt/last.safetensors",
                    {{"c1.weight", Tensor::zeros({4, 1, 5, 5})},
                     {"c1.bias", Tensor::zeros({4})},
                     {"c1.mask.keep", Tensor::zeros({4, 1, 5, 5})},
                     {"c1.weight_quantizer.log_step", Tensor::zeros({1})},
                     {"f2.weight", Tensor::zeros({10, 16})},
                     {"optimizer/momentum.c1.weight", Tensor::zeros({4, 1, 5, 5})}});
  EXPECT_EQ(weight_size(read_run(folder)).stored_bytes, 4 * (100 + 4 + 160));
  EXPECT_EQ(weight_size(read_run(folder)).nominal_bytes, 4 * (100 + 4 + 160));
  write_text(folder + "/quant.csv",
             "step,epoch,layer,tensor,bits,signed,step_size_min,step_size_mean,step_size_max,"
             "saturated_percent\n1,1,c1,weight,4,1,0.1,0.1,0.1,0\n1,1,c1,input,8,0,1,1,1,0\n");
  write_text(folder + "/sparsity.csv",
             "step,layer,weights,zeros\n0,f2,160,0\n10,f2,160,120\n"
             "10,c1,300,150\n10,total,460,270\n");
  const WeightSize size = weight_size(read_run(folder));
  EXPECT_EQ(size.stored_bytes, 4 * (100 + 4 + 160));
  EXPECT_EQ(size.nominal_bytes, 100 * 4 / 8 + 4 * 4 + 160 * 0.25 * 4);
  write_safetensors(folder + "/ckpt/last.safetensors", {{"a", Tensor::zeros({10}, DType::f64)},
                                                        {"b", Tensor::zeros({100}, DType::f16)},
                                                        {"c", Tensor::zeros({1000}, DType::bf16)},
                                                        {"d", Tensor::zeros({10000}, DType::i8)}});
  EXPECT_EQ(weight_size(read_run(folder)).stored_bytes, 80 + 200 + 2000 + 10000);
  write_text(folder + "/ckpt/last.safetensors", "not a checkpoint");
  EXPECT_TRUE(std::isnan(weight_size(read_run(folder)).stored_bytes));
}

}  // namespace
}  // namespace convscope::testing
