// SPDX-License-Identifier: Apache-2.0
// sweep_plan_test.cpp: the members of the block `sweep:`.
#include <gtest/gtest.h>

#include <algorithm>

#include "experiments/config/sweep_block.h"
#include "experiments/sweep/sweep_check.h"

namespace convscope {
namespace {

const std::string kBase =
    "name: study\nseed: 7\ndata: {set: synthetic_digits}\nmodel: {type: lenet5}\n";

SweepPlan plan_of(const std::string& sweep, const std::vector<std::string>& overrides = {}) {
  return parse_sweep_text(kBase + "sweep:\n" + sweep, "study.yaml", {}, overrides);
}

std::vector<std::string> labels(const SweepPlan& plan) {
  std::vector<std::string> out;
  for (const SweepMember& member : plan.members) {
    out.push_back(cat(member.row, " s", member.config.seed));
  }
  return out;
}

using Words = std::vector<std::string>;

TEST(SweepPlan, takes_every_value_of_the_grid_with_every_other) {
  const SweepPlan plan =
      plan_of("  grid: {optim.lr: [0.1, 0.2], data.batch_size: [8, 16], train.epochs: [1]}\n");
  EXPECT_EQ(plan.name, "study");
  EXPECT_EQ(labels(plan),
            (Words{"lr-0.1--batch_size-8--epochs-1 s7", "lr-0.1--batch_size-16--epochs-1 s7",
                   "lr-0.2--batch_size-8--epochs-1 s7", "lr-0.2--batch_size-16--epochs-1 s7"}));
  EXPECT_EQ(plan.members[2].config.optim.lr, 0.2);
  EXPECT_EQ(plan.members[2].config.data.batch_size, 8);
  EXPECT_EQ(plan.members[2].config.name, "lr-0.2--batch_size-8--epochs-1");
}

TEST(SweepPlan, takes_the_lists_of_zip_side_by_side) {
  const SweepPlan plan = plan_of("  zip: {optim.lr: [0.1, 0.2], data.batch_size: [8, 16]}\n");
  EXPECT_EQ(labels(plan), (Words{"lr-0.1--batch_size-8 s7", "lr-0.2--batch_size-16 s7"}));
}

TEST(SweepPlan, multiplies_members_zip_and_grid_and_runs_all_rows_with_the_first_seed_first) {
  const SweepPlan plan = plan_of(
      "  members: [{name: a}, {name: b, optim.lr: 0.5}]\n"
      "  zip: {train.epochs: [1, 2], data.limit: [100, 200]}\n"
      "  grid: {data.batch_size: [8, 16]}\n"
      "  seeds: [3, 1]\n");
  ASSERT_EQ(plan.members.size(), 16u);
  ASSERT_EQ(plan.rows.size(), 8u);
  EXPECT_EQ(plan.rows[0].name, "a--epochs-1--limit-100--batch_size-8");
  EXPECT_EQ(plan.rows[7].name, "b--epochs-2--limit-200--batch_size-16");
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(plan.members[i].config.seed, 3);
    EXPECT_EQ(plan.members[i + 8].config.seed, 1);
    EXPECT_EQ(plan.members[i].row, plan.rows[i].name);
  }
  EXPECT_EQ(plan.members[7].config.optim.lr, 0.5);
  EXPECT_EQ(plan.members[7].config.data.limit, 200);
}

TEST(SweepPlan, merges_whole_blocks_of_a_member_and_keeps_its_reference_out_of_the_config) {
  const SweepPlan plan = plan_of(
      "  members:\n"
      "    - {name: dense, reference: {acc: 58.07, avg_forward: 0.0128}}\n"
      "    - {name: lsq, quant: {w_bits: 4, a_bits: 4}, optim: {lr: 0.3}}\n"
      "    - {name: sparse, sparsity: {method: magnitude, target: 0.7}, quant: null}\n");
  EXPECT_EQ(labels(plan), (Words{"dense s7", "lsq s7", "sparse s7"}));
  EXPECT_EQ(plan.rows[0].reference.at("acc"), 58.07);
  EXPECT_EQ(plan.rows[0].reference.at("avg_forward"), 0.0128);
  EXPECT_TRUE(plan.rows[1].reference.empty());
  ASSERT_TRUE(plan.members[1].config.quant.has_value());
  EXPECT_EQ(plan.members[1].config.quant->w_bits, 4);
  EXPECT_EQ(plan.members[1].config.optim.lr, 0.3);
  EXPECT_EQ(plan.members[1].config.optim.type, "sgd");
  EXPECT_FALSE(plan.members[2].config.quant.has_value());
  EXPECT_EQ(plan.members[2].config.sparsity.number("target"), 0.7);
}

TEST(SweepPlan, leaves_out_what_is_excluded_by_value_by_name_or_by_seed) {
  const SweepPlan plan = plan_of(
      "  members: [{name: a}, {name: b}]\n"
      "  grid: {optim.lr: [0.1, 2], data.batch_size: [8, 16]}\n"
      "  exclude: [{optim.lr: 2.0, data.batch_size: 8}, {name: b, optim.lr: 0.1}, "
      "{name: a, seed: 2, data.batch_size: 16}]\n"
      "  seeds: [1, 2]\n");
  EXPECT_EQ(labels(plan), (Words{"a--lr-0.1--batch_size-8 s1", "a--lr-0.1--batch_size-16 s1",
                                 "a--lr-2--batch_size-16 s1", "b--lr-2--batch_size-16 s1",
                                 "a--lr-0.1--batch_size-8 s2", "b--lr-2--batch_size-16 s2"}));
  EXPECT_EQ(plan.rows.size(), 4u);
}

TEST(SweepPlan, has_one_row_with_the_name_of_the_sweep_for_seeds_only) {
  EXPECT_EQ(labels(plan_of("  seeds: [1, 2]\n")), (Words{"study s1", "study s2"}));
}

TEST(SweepPlan, names_are_folders_whatever_the_values_are) {
  const SweepPlan plan = plan_of(
      "  grid:\n"
      "    conv.algorithm: [auto, 'check:im2col_gemm,reference']\n"
      "    quant: [null, {w_bits: 4}]\n");
  EXPECT_EQ(plan.rows[0].name, "algorithm-auto--quant-none");
  EXPECT_EQ(plan.rows[3].name, "algorithm-check_im2col_gemm_reference--quant-w_bits-4");
  const std::string safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  for (const SweepRow& row : plan.rows) {
    EXPECT_EQ(row.name.find_first_not_of(safe), std::string::npos) << row.name;
  }
}

TEST(SweepPlan, long_names_are_cut_and_stay_different) {
  const std::string word(90, 'a');
  const SweepPlan plan = plan_of("  members: [{name: " + word + "}]\n  grid: {optim.lr: [" +
                                 "0.12345678901, 0.12345678902]}\n");
  EXPECT_EQ(plan.rows[0].name.size(), 100u);
  EXPECT_NE(plan.rows[0].name, plan.rows[1].name);
}

TEST(SweepPlan, keys_with_the_same_last_part_keep_more_of_their_path) {
  const SweepPlan plan =
      plan_of("  grid: {optim.type: [sgd], optim.schedule.type: [cosine], optim.lr: [0.1]}\n");
  EXPECT_EQ(plan.rows[0].name, "optim.type-sgd--schedule.type-cosine--lr-0.1");
}

TEST(SweepPlan, overrides_beat_the_members_and_may_change_the_sweep_itself) {
  const std::string sweep =
      "  members: [{name: a, optim.lr: 0.5}, {name: b}]\n  grid: {data.batch_size: [8]}\n";
  const SweepPlan plan = plan_of(
      sweep, {"optim.lr=0.25", "sweep.grid.data.batch_size=[32, 64]", "sweep.seeds=[5]", "name=x"});
  EXPECT_EQ(plan.name, "x");
  EXPECT_EQ(plan.members.size(), 4u);
  for (const SweepMember& member : plan.members) {
    EXPECT_EQ(member.config.optim.lr, 0.25);
    EXPECT_EQ(member.config.seed, 5);
  }
  EXPECT_EQ(plan.members[1].config.data.batch_size, 64);
}

TEST(SweepPlan, a_sweep_may_extend_another_and_its_own_text_reads_back) {
  const auto reader = [](const std::string&) {
    return kBase + "sweep: {grid: {optim.lr: [0.1, 0.2]}, seeds: [1, 2]}\n";
  };
  const SweepPlan plan = parse_sweep_text(
      "extends: base.yaml\nsweep:\n  members: [{name: 'a', optim.groups: [{match: '*.bias', "
      "weight_decay: 0}]}]\n  seeds: [4]\n",
      "child.yaml", reader);
  EXPECT_EQ(labels(plan), (Words{"a--lr-0.1 s4", "a--lr-0.2 s4"}));
  const SweepPlan again = parse_sweep_text(plan.yaml, "other.yaml");
  EXPECT_EQ(again.name, plan.name);
  EXPECT_EQ(again.yaml, plan.yaml);
  ASSERT_EQ(labels(again), labels(plan));
  for (std::size_t i = 0; i < plan.members.size(); ++i) {
    EXPECT_EQ(to_yaml(again.members[i].config), to_yaml(plan.members[i].config));
  }
}

TEST(SweepPlan, has_the_rows_and_accuracies_of_the_original_cifar10_table) {
  const std::string folder = CONVSCOPE_SOURCE_DIR "/experiments/configs/";
  const SweepPlan plan = load_sweep(folder + "cifar10_lenet5_table.yaml");
  const std::vector<std::pair<std::string, double>> original = {
      {"lenet_gemm_k5_b256", 58.07},     {"lenet_gemm_k7_b256", 53.33},
      {"lenet_gemm_k3_b256", 51.26},     {"lenet_k5_b64", 53.16},
      {"lenet_gemm_k7_b4", 9.67},        {"lenet_quantized_k5_b64", 43.58},
      {"lenet_quantized_k7_b64", 43.03}, {"lenet_quantized_k3_b256", 37.32},
      {"lenet_quantized_k3_b64", 10.65}, {"lenet_quantized_k7_b8", 16.23},
      {"sparse_lenet_k5_b64", 13.46},    {"sparse_lenet_k3_b64", 10.09},
      {"sparse_lenet_k3_b256", 10.88},   {"sparse_lenet_k7_b256", 10.14},
      {"sparse_lenet_k7_b8", 15.55},     {"sparse_struct_k5_b64", 10.00},
      {"sparse_struct_k7_b8", 10.16},    {"sparse_struct_k7_b4", 10.00}};
  ASSERT_EQ(plan.rows.size(), original.size());
  EXPECT_EQ(plan.members.size(), 3 * original.size());
  for (std::size_t i = 0; i < original.size(); ++i) {
    EXPECT_EQ(plan.rows[i].name, original[i].first);
    EXPECT_EQ(plan.rows[i].reference.at("acc"), original[i].second);
    // The name shows the config's values.
    const ExperimentConfig& config = plan.members[i].config;
    const std::string ending =
        cat("_k", config.model.options.integer("kernel_size"), "_b", config.data.batch_size);
    EXPECT_TRUE(plan.rows[i].name.ends_with(ending)) << plan.rows[i].name << ending;
    EXPECT_EQ(config.quant.has_value(), plan.rows[i].name.starts_with("lenet_quantized"));
    EXPECT_EQ(config.sparsity.values().empty(), plan.rows[i].name.starts_with("lenet"));
    EXPECT_EQ(config.train.epochs, 10);
  }
  EXPECT_NO_THROW(check_members(plan));

  const SweepPlan mnist = load_sweep(folder + "mnist_lenet5_table.yaml");
  EXPECT_NO_THROW(check_members(mnist));
  ASSERT_EQ(mnist.rows.size(), plan.rows.size());
  for (std::size_t i = 0; i < plan.rows.size(); ++i) {
    EXPECT_EQ(mnist.rows[i].name, plan.rows[i].name);
    EXPECT_EQ(mnist.members[i].config.data.set, "mnist");
  }
}

}  // namespace
}  // namespace convscope
