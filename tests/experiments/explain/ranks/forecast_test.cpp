// SPDX-License-Identifier: Apache-2.0
// forecast_test.cpp: tests the output of `explain --ranks`: the table, the efficiency, and the
// sentence about what limits the speed. The times per process are invented in the first tests and
// measured in the last.
#include "experiments/explain/ranks/forecast.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"

namespace convscope {
namespace {

using testing::call_program;
using testing::Called;

const std::string kSmall =
    "data: {set: synthetic_digits, batch_size: 8}\n"
    "layers:\n"
    "  - {type: conv2d, name: c1, out_channels: 4, kernel_size: 5}\n"
    "  - {type: batch_norm2d}\n"
    "  - {type: relu}\n"
    "  - {type: flatten}\n"
    "  - {type: linear, name: f1, out_features: 10}\n";

ShareTimes share_of(std::int64_t images, double step_s) {
  return {.images = images,
          .step_s = step_s,
          .backward_s = step_s / 2,
          .departures = {{step_s / 4, 1e6}, {step_s / 2, 1e6}},
          .execution = "planned"};
}

// Returns a forecast for a batch of 64 images. A step takes `fixed_s` plus 100 us per image.
Forecast made_up(double fixed_s, const Link& link, int ranks = 4) {
  Forecast out{.name = "made up", .device = "cpu", .batch = 64, .parameters = 500000};
  out.question = {.ranks = ranks, .cluster = {.between = link}};
  for (int p = 1; p <= ranks; p *= 2) {
    out.shares.push_back(share_of(64 / p, fixed_s + 100e-6 * 64 / p));
    out.rows.push_back(forecast_row(p, 64, out.shares.back(), out.question.cluster, SumOrder::any));
  }
  set_efficiency(out.rows);
  return out;
}

constexpr Link kPerfect = {std::numeric_limits<double>::infinity(), 0};

TEST(Forecast, OfOneProcessIsTheMeasuredStep) {
  const Forecast one = made_up(1e-3, {1e9, 10e-6}, 1);
  ASSERT_EQ(one.rows.size(), 1u);
  EXPECT_DOUBLE_EQ(one.rows[0].step_s, 7.4e-3);
  EXPECT_EQ(one.rows[0].exchange_s, 0);
  EXPECT_EQ(one.rows[0].exposed_s, 0);
  EXPECT_DOUBLE_EQ(one.rows[0].efficiency, 1);
  EXPECT_NE(limit_text(one).find("One process exchanges nothing"), std::string::npos);
}

TEST(Forecast, WithAPerfectNetworkIsComputingAlone) {
  for (const ForecastRow& row : made_up(1e-3, kPerfect).rows) {
    EXPECT_EQ(row.exposed_s, 0);
    EXPECT_DOUBLE_EQ(row.step_s, row.compute_s);
    EXPECT_DOUBLE_EQ(row.network_efficiency, 1);
  }
  for (const ForecastRow& row : made_up(0, kPerfect).rows) EXPECT_DOUBLE_EQ(row.efficiency, 1);
}

TEST(Forecast, AddsWhatTheBackwardDoesNotHide) {
  const Forecast two = made_up(0, {1e9, 0}, 2);
  const ForecastRow& row = two.rows[1];
  // With two processes, each computes for 3.2 ms; its backward pass lasts from 0 to 1.6 ms. A
  // process first sends a message of 64 bytes. Then it sends two buckets of gradients, which take 1
  // ms each and begin at 0.8 ms and at 1.8 ms.
  EXPECT_DOUBLE_EQ(row.compute_s, 3.2e-3);
  EXPECT_NEAR(row.exchange_s, 2e-3, 1e-7);
  EXPECT_NEAR(row.exposed_s, 1.2e-3, 1e-9);
  EXPECT_NEAR(row.step_s, 4.4e-3, 1e-9);
  EXPECT_NEAR(row.images_per_s, 64 / 4.4e-3, 1);
  EXPECT_NEAR(row.efficiency, 6.4 / 4.4 / 2, 1e-6);  // one process takes 6.4 ms
  EXPECT_NEAR(row.network_efficiency, 3.2 / 4.4, 1e-6);
}

TEST(Forecast, NamesTheLimit) {
  EXPECT_NE(limit_text(made_up(0, kPerfect)).find("computing is the limit"), std::string::npos);
  EXPECT_NE(limit_text(made_up(20e-3, kPerfect)).find("the batch is too small: 16 of its images"),
            std::string::npos);
  const std::string slow = limit_text(made_up(0, {0.1e9, 10e-6}));
  EXPECT_NE(slow.find("the network is the limit, by its rate"), std::string::npos) << slow;
  const std::string late = limit_text(made_up(0, {100e9, 2e-3}));
  EXPECT_NE(late.find("the network is the limit, by its latency"), std::string::npos) << late;
}

TEST(Forecast, HasARowForEachPowerOfTwoAndForTheLast) {
  ExperimentConfig config = parse_config_text(kSmall, "small.yaml");
  std::string stopped;
  const auto counts = [&](int ranks, bool keep_share = false) {
    return forecast_processes(config, {.ranks = ranks, .keep_share = keep_share}, stopped);
  };
  EXPECT_EQ(counts(1), (std::vector<int>{1}));
  EXPECT_EQ(counts(8), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(counts(6), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(stopped, "");
  EXPECT_EQ(counts(64), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_NE(stopped.find("More processes than images in a batch, 8"), std::string::npos);
  EXPECT_EQ(counts(64, /*keep_share=*/true).back(), 64);
  EXPECT_EQ(stopped, "");
  config.train.deterministic_ranks = true;  // in 4 parts
  EXPECT_EQ(counts(8), (std::vector<int>{1, 2, 4}));
  EXPECT_NE(stopped.find("More processes than train.rank_parts, 4"), std::string::npos);
  EXPECT_EQ(counts(3), (std::vector<int>{1, 2}));
  EXPECT_NE(stopped.find("so 3 cannot train"), std::string::npos);
  config.train.rank_parts = 3;
  EXPECT_ERROR(ErrorKind::kConfig, "expected train.rank_parts to be a power of two", counts(2));
}

TEST(Forecast, MeasuresWhenEachBucketIsComplete) {
  ExperimentConfig config = parse_config_text(kSmall, "small.yaml");
  config.train.bucket_mib = 1e-6;  // a bucket for each parameter
  ShareTimer timer(config, {.min_seconds = 0, .least_samples = 3, .warm_up = 1});
  const ShareTimes share = timer.measure(4, 1);
  EXPECT_EQ(share.images, 4);
  EXPECT_GT(share.backward_s, 0);
  EXPECT_GT(share.step_s, share.backward_s);
  EXPECT_EQ(share.execution, "planned");
  // Order of the messages: the running statistics, then the gradients of f1, of the batch norm and
  // of c1. In each layer the bias precedes the weight.
  ASSERT_EQ(share.departures.size(), 7u);
  EXPECT_EQ(share.departures[0].bytes, 2 * 4 * 4);
  EXPECT_EQ(share.departures[2].bytes, 4.0 * 10 * 4 * 24 * 24);
  for (std::size_t i = 0; i < share.departures.size(); ++i) {
    EXPECT_GE(share.departures[i].ready_s, i == 0 ? 0 : share.departures[i - 1].ready_s) << i;
    EXPECT_LE(share.departures[i].ready_s, share.backward_s) << i;
  }
  EXPECT_GT(share.departures[6].ready_s, share.departures[1].ready_s);
  EXPECT_EQ(timer.measure(2, 1).images, 2);  // another share of the same network
}

TEST(Forecast, MeasuresTheChunksOfADeterministicSum) {
  ExperimentConfig config = parse_config_text(kSmall, "small.yaml");
  config.train.deterministic_ranks = true;
  ShareTimer timer(config, {.min_seconds = 0, .least_samples = 3, .warm_up = 1});
  const ShareTimes share = timer.measure(8, 4);
  EXPECT_GT(share.step_s, 4 * share.backward_s);
  EXPECT_EQ(share.departures.size(), 2u);  // once per step, not once per chunk
}

TEST(Forecast, RefusesPoints) {
  const ExperimentConfig config =
      load_config(CONVSCOPE_SOURCE_DIR "/experiments/configs/sparse_shapes.yaml", {"sweep=null"});
  EXPECT_ERROR(ErrorKind::kUnavailable, "expected a network on images with --ranks",
               ShareTimer(config).parameters());
}

const std::string kQuickstart = "explain quickstart threads=1 data.batch_size=16 ";

TEST(ForecastCommand, PrintsATableAndTheLimit) {
  const Called answer = call_program(kQuickstart + "--ranks 4 --network 10Gb,20us");
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_NE(answer.out.find("network: between hosts 10 Gb/s (1.25 GB/s), 20 us"), std::string::npos)
      << answer.out;
  EXPECT_NE(answer.out.find("processes  images each  step ms"), std::string::npos) << answer.out;
  EXPECT_NE(answer.out.find("\nWith 4 processes "), std::string::npos) << answer.out;
  EXPECT_NE(answer.err.find("timing a step of 4 images"), std::string::npos) << answer.err;
}

TEST(ForecastCommand, PrintsTheSameAsJson) {
  const Called answer =
      call_program(kQuickstart + "--ranks 2 --ranks-per-host 2 --keep-share --json");
  ASSERT_EQ(answer.code, 0) << answer.err;
  const nlohmann::json all = nlohmann::json::parse(answer.out);
  EXPECT_EQ(all.at("network").at("ranks_per_host"), 2);
  EXPECT_GT(all.at("network").at("inside").at("bytes_per_s").get<double>(), 0);
  ASSERT_EQ(all.at("rows").size(), 2u);
  const auto& last = all.at("rows")[1];
  EXPECT_EQ(last.at("processes"), 2);
  EXPECT_EQ(last.at("batch"), 32);
  EXPECT_EQ(last.at("images_per_process"), 16);
  EXPECT_EQ(last.at("buckets").size(), 1u);
  EXPECT_NEAR(last.at("step_ms").get<double>(),
              last.at("compute_ms").get<double>() + last.at("exposed_ms").get<double>(), 1e-9);
  EXPECT_FALSE(all.at("limit").get<std::string>().empty());
}

TEST(ForecastCommand, RefusesWordsThatDoNotGoTogether) {
  const auto refused = [](const std::string& words, const std::string& sentence) {
    const Called answer = call_program(kQuickstart + words);
    EXPECT_EQ(answer.code, 2) << words;
    EXPECT_NE(answer.err.find(sentence), std::string::npos) << answer.err;
  };
  refused("--network 25Gb", "expected --ranks N with --network");
  refused("--keep-share", "expected --ranks N with --network");
  refused("--ranks 2 --all", "expected --ranks without --layer");
  refused("--ranks 2 --network fast", "got 'fast'");
  refused("--ranks 2 --inside 1GB", "expected --inside with --ranks-per-host of at least 2");
  refused("--ranks 0", "--ranks");
}

}  // namespace
}  // namespace convscope
