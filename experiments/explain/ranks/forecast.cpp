// SPDX-License-Identifier: Apache-2.0
// forecast.cpp: predicts the time of a training step on 1, 2, 4, ... processes.
#include "experiments/explain/ranks/forecast.h"

#include <algorithm>

#include "framework/int_math.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

// After the forward pass, a step also sums the loss and the number of correct answers over the
// processes. This sum has only a few bytes.
constexpr Departure kFacts = {.ready_s = 0, .bytes = 64};

std::int64_t batch_of(const ExperimentConfig& config, const ForecastQuestion& question,
                      int processes) {
  return question.keep_share ? config.data.batch_size * processes : config.data.batch_size;
}

int chunks_of(const ExperimentConfig& config, int processes) {
  return static_cast<int>(config.train.deterministic_ranks ? config.train.rank_parts / processes
                                                           : config.train.accumulate);
}

}  // namespace

std::vector<int> forecast_processes(const ExperimentConfig& config,
                                    const ForecastQuestion& question, std::string& stopped) {
  const std::int64_t batch = config.data.batch_size;
  const std::int64_t parts = config.train.rank_parts;
  const bool fixed = config.train.deterministic_ranks;
  if (fixed && (parts < 1 || (parts & (parts - 1)) != 0 || parts > batch)) {
    fail(ErrorKind::kConfig, "explain",
         cat("expected train.rank_parts to be a power of two and at most data.batch_size, ", batch,
             ", because each part has at least one image, got ", parts));
  }
  std::vector<int> out;
  for (int p = 1; p < question.ranks; p *= 2) out.push_back(p);
  if (!fixed || (question.ranks & (question.ranks - 1)) == 0) out.push_back(question.ranks);
  const auto left_out = [&](int p) {
    return fixed ? p > parts : !question.keep_share && p * config.train.accumulate > batch;
  };
  stopped.clear();
  if (std::ranges::any_of(out, left_out)) {
    stopped = fixed ? cat("More processes than train.rank_parts, ", parts, ", cannot train.")
                    : cat("More processes than images in a batch, ", batch,
                          ", cannot train; with --keep-share each process has a whole batch.");
    std::erase_if(out, left_out);
  } else if (out.back() != question.ranks) {
    stopped = cat("train.deterministic_ranks takes 1, 2, 4, .. processes, so ", question.ranks,
                  " cannot train.");
  }
  return out;
}

ForecastRow forecast_row(int processes, std::int64_t batch, const ShareTimes& share,
                         const Cluster& cluster, SumOrder order) {
  std::vector<Departure> departures = {kFacts};
  departures.insert(departures.end(), share.departures.begin(), share.departures.end());
  const ExchangeTime exchange =
      exchange_time(departures, share.backward_s, processes, cluster, order);
  ForecastRow row{.processes = processes,
                  .batch = batch,
                  .images = share.images,
                  .step_s = share.step_s + exchange.exposed_s,
                  .compute_s = share.step_s,
                  .exchange_s = exchange.busy_s,
                  .exposed_s = exchange.exposed_s};
  row.images_per_s = static_cast<double>(batch) / row.step_s;
  row.network_efficiency = row.compute_s / row.step_s;
  return row;
}

void set_efficiency(std::vector<ForecastRow>& rows) {
  for (ForecastRow& row : rows) {
    row.efficiency = row.images_per_s / (rows.front().images_per_s * row.processes);
  }
}

Forecast forecast(const ExperimentConfig& config, const ForecastQuestion& question,
                  const std::function<void(const std::string&)>& say) {
  Forecast out{.name = config.name,
               .device = config.device.str(),
               .batch = config.data.batch_size,
               .order = config.train.deterministic_ranks ? SumOrder::tree : SumOrder::any,
               .question = question};
  const std::vector<int> counts = forecast_processes(config, question, out.stopped);
  ShareTimer timer(config);
  out.parameters = timer.parameters();
  out.threads = num_threads();
  for (const int processes : counts) {
    const std::int64_t batch = batch_of(config, question, processes);
    const std::int64_t images = ceil_div(batch, std::int64_t{processes});
    const int chunks = chunks_of(config, processes);
    const auto same = std::ranges::find_if(out.shares, [&](const ShareTimes& share) {
      return share.images == images && share.chunks == chunks;
    });
    if (same == out.shares.end()) {
      say(cat("timing a step of ", images, images == 1 ? " image ..." : " images ..."));
      out.shares.push_back(timer.measure(images, chunks));
    } else {
      out.shares.push_back(ShareTimes(*same));
    }
    out.rows.push_back(
        forecast_row(processes, batch, out.shares.back(), question.cluster, out.order));
  }
  set_efficiency(out.rows);
  return out;
}

}  // namespace convscope
