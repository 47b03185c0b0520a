// SPDX-License-Identifier: Apache-2.0
// forecast_text.cpp: the table of predicted training steps on several processes, the sentence on
// their limit, and both as JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/explain/ranks/forecast.h"
#include "experiments/explain/text_layout.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGood = 0.9;  // above this efficiency only computing limits

std::string ms(double seconds) { return number_text("%.4g", 1e3 * seconds); }
std::string percent(double part) { return number_text("%.0f %%", 100 * part); }

double gradient_bytes(const Forecast& forecast) {
  double out = 0;
  for (const Departure& one : forecast.shares.front().departures) out += one.bytes;
  return out;
}

std::string network_text(const Forecast& forecast) {
  const Cluster& cluster = forecast.question.cluster;
  std::string out = cat("between hosts ", link_text(cluster.between));
  if (cluster.per_host > 1) {
    out += cat("; inside a host of ", cluster.per_host, " processes ", link_text(cluster.inside));
  }
  return out;
}

// Returns which part of the network dominates.
std::string slow_part(const Forecast& forecast) {
  const ForecastRow& last = forecast.rows.back();
  Cluster quick = forecast.question.cluster;
  quick.between.latency_s = quick.inside.latency_s = 0;
  const ForecastRow without =
      forecast_row(last.processes, last.batch, forecast.shares.back(), quick, forecast.order);
  return without.exposed_s < last.exposed_s / 2 ? "latency" : "rate";
}

Json json_of(const Link& link) {
  return {{"bytes_per_s", link.bytes_per_s}, {"latency_us", 1e6 * link.latency_s}};
}

Json json_of(const ForecastRow& row, const ShareTimes& share) {
  Json out = {{"processes", row.processes},
              {"batch", row.batch},
              {"images_per_process", row.images},
              {"step_ms", 1e3 * row.step_s},
              {"compute_ms", 1e3 * row.compute_s},
              {"backward_ms", 1e3 * share.backward_s},
              {"exchange_ms", 1e3 * row.exchange_s},
              {"exposed_ms", 1e3 * row.exposed_s},
              {"images_per_s", row.images_per_s},
              {"efficiency", row.efficiency},
              {"network_efficiency", row.network_efficiency},
              {"execution", share.execution}};
  out["buckets"] = Json::array();
  for (const Departure& one : share.departures) {
    out["buckets"].push_back({{"bytes", one.bytes}, {"ready_ms", 1e3 * one.ready_s}});
  }
  return out;
}

}  // namespace

std::string limit_text(const Forecast& forecast) {
  const ForecastRow& one = forecast.rows.front();
  const ForecastRow& last = forecast.rows.back();
  if (last.processes == 1) return "One process exchanges nothing, so computing is the limit.";
  const std::string prefix = cat("With ", last.processes, " processes ");
  if (last.efficiency >= kGood) {
    return cat(prefix, "computing is the limit: ", percent(last.network_efficiency),
               " of a step is computing, so more processes help.");
  }
  // A step loses time by the exposed exchange, and by computing for longer than an equal part of
  // one process's work. The larger of these times is reported as the limit.
  const double images = static_cast<double>(last.batch) / static_cast<double>(one.batch);
  const double ideal = one.compute_s * images / last.processes;
  if (last.exposed_s >= last.compute_s - ideal) {
    const std::string what = slow_part(forecast);
    const bool has_many_buckets = forecast.shares.back().departures.size() > 1;
    return cat(prefix, "the network is the limit, by its ", what, ": ", ms(last.exposed_s), " of ",
               ms(last.step_s), " ms of a step wait for it. ",
               what == "rate" ? "A faster network or a larger batch helps."
               : has_many_buckets
                   ? "Fewer, larger buckets (train.bucket_mib) or a larger batch help."
                   : "A larger batch helps.");
  }
  const auto each = [](const ForecastRow& row) {
    return ms(row.compute_s / static_cast<double>(row.images));
  };
  return cat(prefix, "the batch is too small: ", last.images, " of its images take ", each(last),
             " ms each, ", one.images, " take ", each(one), ". A larger data.batch_size helps.");
}

std::string forecast_text(const Forecast& forecast) {
  const std::size_t buckets = forecast.shares.front().departures.size();
  std::string out =
      cat(forecast.name, ": batch ", forecast.batch,
          forecast.question.keep_share ? " for each process, " : ", ", forecast.parameters,
          " parameters; a step sums ", number_text("%.3g", gradient_bytes(forecast) / 1048576),
          " MiB in ", buckets, buckets == 1 ? " message" : " messages", "; each process ",
          forecast.device, ", ", forecast.threads, forecast.threads == 1 ? " thread" : " threads");
  out = wrapped_text(out);
  out += wrapped_text(cat("network: ", network_text(forecast),
                          forecast.order == SumOrder::tree ? "; sums in a tree" : "")) +
         "\n";
  std::vector<std::vector<std::string>> rows = {{"processes", "images each", "step ms",
                                                 "compute ms", "exchange ms", "exposed ms",
                                                 "images/s", "efficiency"}};
  for (const ForecastRow& row : forecast.rows) {
    rows.push_back({std::to_string(row.processes), std::to_string(row.images), ms(row.step_s),
                    ms(row.compute_s), ms(row.exchange_s), ms(row.exposed_s),
                    number_text("%.0f", row.images_per_s), percent(row.efficiency)});
  }
  out += columns_text(rows, 0, {0, 1, 2, 3, 4, 5, 6, 7}) + "\n";
  out += wrapped_text(limit_text(forecast), 0);
  if (!forecast.stopped.empty()) out += wrapped_text(forecast.stopped, 0);
  out += wrapped_text(
      "compute: measured here, on random images. exchange: all sums, by the model; exposed: what "
      "the backward pass does not hide. efficiency: images/s divided by the number of processes "
      "and by the images/s of one process with the whole batch.",
      0);
  return out;
}

std::string forecast_json(const Forecast& forecast) {
  const Cluster& cluster = forecast.question.cluster;
  Json network = {{"between", json_of(cluster.between)},
                  {"ranks_per_host", cluster.per_host},
                  {"order", forecast.order == SumOrder::tree ? "tree" : "any"}};
  if (cluster.per_host > 1) network["inside"] = json_of(cluster.inside);
  Json all = {{"config", forecast.name},
              {"batch", forecast.batch},
              {"keep_share", forecast.question.keep_share},
              {"parameters", forecast.parameters},
              {"device", forecast.device},
              {"threads", forecast.threads},
              {"network", network},
              {"rows", Json::array()},
              {"limit", limit_text(forecast)}};
  if (!forecast.stopped.empty()) all["stopped"] = forecast.stopped;
  for (std::size_t i = 0; i < forecast.rows.size(); ++i) {
    all["rows"].push_back(json_of(forecast.rows[i], forecast.shares[i]));
  }
  return json_text(all);
}

}  // namespace convscope
