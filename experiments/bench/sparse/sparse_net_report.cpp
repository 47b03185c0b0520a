// SPDX-License-Identifier: Apache-2.0
// sparse_net_report.cpp: the output of `convscope bench sparse_net`: a table for people, JSON for
// programs, and optionally the times of another library.
#include "experiments/bench/sparse/sparse_net_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/bench/bench_report.h"
#include "experiments/report/json_fields.h"
#include "experiments/report/text_table.h"
#include "experiments/run_folder/environment.h"
#include "framework/io/bytes.h"
#include "framework/io/former_names.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOperation = "bench sparse_net";

[[noreturn]] void broken(const std::string& file, const std::string& got) {
  fail(ErrorKind::kData, kOperation,
       cat("expected a file of sparse_conv_vs_spconv.py --net for --baseline, got ", file, " ",
           got));
}

double ms_at(const Json& object, const char* key) {
  const Json& value = child(object, key);
  const double out = value.is_number() ? value.get<double>() : 0;
  return std::isfinite(out) && out > 0 ? out : 0;
}

std::string channels_text(const std::vector<std::int64_t>& channels) {
  std::string out;
  for (const std::int64_t count : channels) out += cat(out.empty() ? "" : "-", count);
  return out;
}

TableCell cell(double value) { return value > 0 ? TableCell(value) : TableCell(); }

// Returns theirs / ours, where both exist.
TableCell ratio(double theirs, double ours) {
  return theirs > 0 && ours > 0 ? TableCell(theirs / ours) : TableCell();
}

}  // namespace

const SparseNetBaseline::Row* SparseNetBaseline::beside(const std::string& precision,
                                                        const std::string& algorithm) const {
  const Row* best = nullptr;
  for (const Row& row : rows) {
    if (row.precision != precision) continue;
    if (row.algorithm == algorithm) return &row;
    if (best == nullptr ||
        row.forward_ms + row.backward_ms < best->forward_ms + best->backward_ms) {
      best = &row;
    }
  }
  return best;
}

SparseNetBaseline read_sparse_net_baseline(const std::string& file, std::int64_t voxels,
                                           const std::vector<std::int64_t>& channels) {
  const Json json =
      Json::parse(with_todays_names(read_text(file, kMaxTextBytes), file), nullptr, false);
  if (json.is_discarded() || !json.is_object()) broken(file, "that is not a JSON object");
  if (text_at(json, "format") != "convscope baseline sparse_net 1") {
    broken(file, cat("of the format '", text_at(json, "format"), "'"));
  }
  if (!json.contains("rows") || !json["rows"].is_array() || json["rows"].empty()) {
    broken(file, "without rows");
  }
  const Json net = {{"voxels", voxels}, {"channels", channels}};
  for (const auto& [key, value] : net.items()) {
    if (json.contains(key) && json[key] == value) continue;
    broken(file, cat("with ", key, " ", json.contains(key) ? json[key].dump() : "unknown",
                     " where this network has ", value.dump()));
  }
  SparseNetBaseline out{
      .name = text_at(json, "baseline"), .device = text_at(json, "device"), .rows = {}};
  for (const Json& row : json["rows"]) {
    if (!row.is_object()) broken(file, "with a row that is not an object");
    out.rows.push_back({text_at(row, "precision"), text_at(row, "algorithm"),
                        ms_at(row, "forward_ms"), ms_at(row, "backward_ms")});
    const SparseNetBaseline::Row& last = out.rows.back();
    if (last.precision.empty() || last.algorithm.empty() || last.forward_ms <= 0 ||
        last.backward_ms <= 0) {
      broken(file, cat("with a row without precision, algorithm, forward_ms or backward_ms: ",
                       row.dump()));
    }
  }
  return out;
}

std::string sparse_net_table(const SparseNetReport& report) {
  const SparseNetBaseline* const baseline = report.baseline;
  TextTable table;
  table.columns = {{"precision"},  {"algorithm"},   {"forward ms", 4}, {"backward ms", 4},
                   {"both ms", 4}, {"work MiB", 0}, {"err/bound", 3}};
  if (baseline != nullptr) {
    for (const char* name : {"its forward", "its backward", "ratio forward", "ratio backward"}) {
      table.columns.push_back({name, 4});
    }
    table.columns.insert(table.columns.end() - 4, {baseline->name, 4});
  }
  for (const SparseNetRow& row : report.bench->rows) {
    if (!row.wrong.empty()) continue;
    const double forward = row.forward.median_ms, backward = row.backward.median_ms;
    const std::string precision(name_of(row.precision));
    table.rows.push_back({precision, row.algorithm, cell(forward), cell(backward),
                          cell(forward + backward),
                          static_cast<double>(row.workspace_bytes) / 1048576.0, row.error_ratio});
    if (baseline == nullptr) continue;
    const SparseNetBaseline::Row* const its = baseline->beside(precision, row.algorithm);
    std::vector<TableCell>& cells = table.rows.back();
    if (its == nullptr) {
      cells.resize(table.columns.size());
      continue;
    }
    cells.insert(cells.end(), {its->algorithm, cell(its->forward_ms), cell(its->backward_ms),
                               ratio(its->forward_ms, forward), ratio(its->backward_ms, backward)});
  }
  std::string out =
      cat(channels_text(report.options->channels), ", 3x3x3, ", report.on->text(), "\n\n");
  if (!table.rows.empty()) out += to_markdown(table) + "\n";
  for (const SparseNetRow& row : report.bench->rows) {
    if (!row.wrong.empty()) {
      out += cat(name_of(row.precision), " ", row.algorithm,
                 ": WRONG RESULT, not timed: ", row.wrong, "\n");
    } else if (row.algorithm == "auto" || row.algorithm == "halo") {  // several algorithms
      out += cat(name_of(row.precision), " ", row.algorithm,
                 " (forward, dx, dw): ", join(row.kernels, "; "), "\n");
    }
  }
  return out;
}

std::string sparse_net_json(const SparseNetReport& report) {
  const SparseNetOptions& options = *report.options;
  const BenchSettings& timing = options.timing;
  Json rows = Json::array();
  const auto add = [&](const std::string& precision, const std::string& algorithm,
                       const char* direction, const TimingSummary& time) -> Json& {
    rows.push_back({{"precision", precision}, {"algorithm", algorithm}, {"direction", direction}});
    rows.back().update(times_json<Json>(time));
    rows.back()["block_medians_ms"] = time.block_medians_ms;
    return rows.back();
  };
  TimingSummary map;
  map.samples = 1;
  map.median_ms = map.p10_ms = map.p90_ms = map.min_ms = report.on->map_ms;
  add("-", cat("map on ", report.options->timing.device.str()), "map", map);
  for (const SparseNetRow& row : report.bench->rows) {
    const std::string precision(name_of(row.precision));
    const SparseNetBaseline::Row* const its =
        report.baseline == nullptr ? nullptr : report.baseline->beside(precision, row.algorithm);
    for (const bool back : {false, true}) {
      Json& json = add(precision, row.algorithm, back ? "backward" : "forward",
                       back ? row.backward : row.forward);
      json["status"] = row.wrong.empty() ? "ok" : "wrong";
      json["wrong"] = row.wrong.empty() ? Json() : Json(row.wrong);
      json["error_ratio"] = std::isfinite(row.error_ratio) ? Json(row.error_ratio) : Json();
      json["workspace_bytes"] = row.workspace_bytes;
      json["kernels"] = row.kernels;
      json["baseline_algorithm"] = its == nullptr ? Json() : Json(its->algorithm);
      json["baseline_ms"] =
          its == nullptr ? Json() : Json(back ? its->backward_ms : its->forward_ms);
    }
  }
  Json refusals = Json::array();
  for (const SparseNetRefusal& one : report.bench->refusals) {
    refusals.push_back({{"precision", std::string(name_of(one.precision))},
                        {"algorithm", one.algorithm},
                        {"reason", one.reason}});
  }
  Json facts = Json::object();
  for (const BenchFact& fact : report.on->facts()) facts[fact.name] = fact.value;
  const Json out = {
      {"format", "convscope bench sparse_net 1"},
      {"complete", true},  // written once, with all rows
      {"machine", Json::parse(environment_json(process_arguments()))},
      {"settings",
       {{"device", timing.device.str()},
        {"threads", report.threads},
        {"clock", timing.cpu_clock ? "cpu" : "wall"},
        {"min_seconds", timing.min_seconds},
        {"least_samples", timing.least_samples},
        {"cloud", options.cloud.text()},
        {"channels", channels_text(options.channels)}}},
      {"map", facts},
      {"baseline", report.baseline == nullptr ? Json()
                                              : Json{{"name", report.baseline->name},
                                                     {"device", report.baseline->device}}},
      {"rows", rows},
      {"refusals", refusals}};
  return json_text(out, 1);
}

}  // namespace convscope
