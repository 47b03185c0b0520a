// SPDX-License-Identifier: Apache-2.0
// bench_json.cpp: the benchmark's rows as JSON and CSV.
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/bench/bench_report.h"
#include "experiments/report/text_table.h"
#include "experiments/run_folder/environment.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

Json load_json(std::optional<double> others) {
  return others ? Json(*rounded_load(others)) : Json();
}

// Returns null for a missing number (not timed, no baseline, no measured peak).
Json number(double value) { return value > 0 && std::isfinite(value) ? Json(value) : Json(); }
Json ratio(const BaselineBenchRow* baseline, double ours) {
  return baseline == nullptr || ours <= 0 ? Json() : Json(baseline->time.median_ms / ours);
}

Json row_json(const ReportedGroup& group, const BenchRow& row,
              const BenchReportSettings& settings) {
  const BaselineBenchRow* const own = group.best_baseline(false);
  const BaselineBenchRow* const plain = group.best_baseline(true);
  const auto median = [](const BaselineBenchRow* baseline) {
    return baseline == nullptr ? Json() : Json(baseline->time.median_ms);
  };
  const bool timed = row.time.samples > 0;
  Json by_algorithm = Json::object();
  for (const BaselineBenchRow& baseline : group.baseline_rows) {
    if (!baseline.plain && baseline.time.samples > 0) {
      by_algorithm[baseline.algorithm] = ratio(&baseline, row.time.median_ms);
    }
  }
  Json out = {
      {"problem", group.problem},
      {"direction", name_of(group.direction)},
      {"algorithm", row.algorithm},
      {"device", settings.device.str()},
      {"threads", group.threads},
      {"status", !row.wrong.empty() ? "wrong"
                 : row.counts()     ? "ok"
                                    : "impossible"},
  };
  out.update(times_json<Json>(row.time));
  out.update(Json{
      {"prepare_ms", number(row.prepare_ms)},
      {"gflops_effective", number(row.gflops_effective)},
      {"gflops_executed", number(row.gflops_executed)},
      {"roofline_percent", number(row.roofline_percent)},
      {"workspace_bytes", row.workspace_bytes},
      {"prepared_bytes", row.prepared_bytes},
      {"error_ratio", std::isfinite(row.error_ratio) ? Json(row.error_ratio) : Json()},
      {"auto_choice", row.auto_choice},
      {"nominal_flops", group.nominal_flops},
      {"nominal_bytes", group.nominal_bytes},
      {"baseline", settings.baseline_name.empty() ? Json() : Json(settings.baseline_name)},
      {"baseline_version",
       settings.baseline_version.empty() ? Json() : Json(settings.baseline_version)},
      {"baseline_algorithm", own == nullptr ? Json() : Json(own->algorithm)},
      {"baseline_median_ms", median(own)},
      {"ratio_to_baseline", ratio(own, row.time.median_ms)},
      {"ratio_to_baseline_min",
       own == nullptr || !timed ? Json() : Json(own->time.min_ms / row.time.min_ms)},
      {"ratio_to_baseline_algorithms", by_algorithm},
      {"baseline_plain_median_ms", median(plain)},
      {"ratio_to_baseline_plain", ratio(plain, row.time.median_ms)},
      {"wrong", row.wrong.empty() ? Json() : Json(row.wrong)},
      {"types", group.types},
  });
  for (const BenchFact& fact : group.facts) {
    const bool whole = std::floor(fact.value) == fact.value && std::abs(fact.value) < 0x1p53;
    out[fact.name] = whole                       ? Json(static_cast<std::int64_t>(fact.value))
                     : std::isfinite(fact.value) ? Json(fact.value)
                                                 : Json();
  }
  if (!group.facts.empty()) out["executed_per_useful"] = number(row.executed_per_useful);
  out["impossible"] = row.impossible.empty() ? Json() : Json(row.impossible);
  return out;
}

Json baseline_row_json(const ReportedGroup& group, const BaselineBenchRow& row,
                       const BenchReportSettings& settings) {
  Json out = {{"problem", group.problem},
              {"direction", name_of(group.direction)},
              {"baseline", settings.baseline_name},
              {"baseline_version", settings.baseline_version},
              {"algorithm", row.algorithm},
              {"layout", row.plain ? "plain, conversions included" : "own"},
              {"implementation", row.implementation},
              {"device", settings.device.str()},
              {"threads", group.threads},
              {"status", row.wrong.empty() ? "ok" : "wrong"}};
  out.update(times_json<Json>(row.time));
  out.update(Json{{"gflops_effective", number(row.gflops_effective)},
                  {"workspace_bytes", row.workspace_bytes},
                  {"error_ratio", std::isfinite(row.error_ratio) ? Json(row.error_ratio) : Json()},
                  {"wrong", row.wrong.empty() ? Json() : Json(row.wrong)},
                  {"types", group.types}});
  return out;
}

Json peaks_json(const CpuPeaks& peaks) {
  const auto pair = [](const Peak& one) {
    return Json{{"one_thread", number(one.one_thread)}, {"all_threads", number(one.all_threads)}};
  };
  return {{"cores", peaks.cores},
          {"flops_per_second", pair(peaks.flops)},
          {"l2_read_bytes_per_second", pair(peaks.l2_read)},
          {"l2_copy_bytes_per_second", pair(peaks.l2_copy)},
          {"l3_read_bytes_per_second", pair(peaks.l3_read)},
          {"l3_copy_bytes_per_second", pair(peaks.l3_copy)},
          {"dram_read_bytes_per_second", pair(peaks.dram_read)},
          {"dram_copy_bytes_per_second", pair(peaks.dram_copy)},
          {"l2_bytes", peaks.l2_bytes},
          {"l3_bytes", peaks.l3_bytes},
          {"int8_ops_per_second", pair(peaks.int8)}};
}

// With `with_blocks`, each row also has a list of the medians of its blocks of samples. CSV is
// written without this list, because a cell cannot hold a list.
Json rows_json(const ReportedGroups& groups, const BenchReportSettings& settings,
               bool with_blocks) {
  Json out = Json::array();
  for (const ReportedGroup& group : groups) {
    for (const BenchRow& row : group.rows) {
      out.push_back(row_json(group, row, settings));
      if (with_blocks) out.back()["block_medians_ms"] = row.time.block_medians_ms;
      out.back()["cores_of_others"] = load_json(group.cores_of_others);
    }
  }
  return out;
}

std::string csv_cell(const Json& value) {
  if (value.is_null()) return "";
  return csv_quoted(value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

std::string peaks_json_text(const CpuPeaks& peaks) { return peaks_json(peaks).dump(2); }

std::string bench_json(const ReportedGroups& groups, const BenchReportSettings& settings) {
  Json machine = Json::parse(environment_json(process_arguments()));
  machine["peaks"] = settings.peaks ? peaks_json(*settings.peaks) : Json();
  Json baseline_rows = Json::array();
  Json refusals = Json::array();
  for (const ReportedGroup& group : groups) {
    const auto refuse = [&](const std::string& algorithm, const std::string& reason) {
      refusals.push_back({{"problem", group.problem},
                          {"direction", name_of(group.direction)},
                          {"algorithm", algorithm},
                          {"reason", reason}});
    };
    for (const BaselineBenchRow& row : group.baseline_rows) {
      baseline_rows.push_back(baseline_row_json(group, row, settings));
    }
    for (const BenchRefusal& one : group.refusals) refuse(one.name, one.reason);
    if (!group.skipped.empty()) refuse("all", group.skipped);
  }
  const Json out = {
      {"format", cat("convscope bench ", settings.operation, " 1")},
      {"complete", settings.complete},
      {"machine", machine},
      {"settings",
       {{"device", settings.device.str()},
        {"threads", settings.threads},
        {"cache", settings.cold ? "cold" : "warm"},
        {"clock", settings.cpu_clock ? "cpu" : "wall"},
        {"weights", settings.weights == WeightUse::once ? "once" : "often"},
        {"min_seconds", settings.min_seconds},
        {"least_samples", settings.least_samples}}},
      {"baseline", settings.baseline_name.empty() ? Json()
                                                  : Json{{"name", settings.baseline_name},
                                                         {"version", settings.baseline_version}}},
      {"rows", rows_json(groups, settings, true)},
      {"baseline_rows", baseline_rows},
      {"refusals", refusals}};
  return json_text(out, 1);
}

std::string bench_csv(const ReportedGroups& groups, const BenchReportSettings& settings) {
  // An empty row provides the names, so that a file without rows still has a header line.
  ReportedGroup empty{BenchGroup<Conv2dProblem>{}};
  if (!groups.empty()) empty.facts = groups.front().facts;
  Json names = row_json(empty, BenchRow{}, settings);
  names["cores_of_others"] = nullptr;
  std::string out;
  for (const auto& [name, value] : names.items()) out += (out.empty() ? "" : ",") + name;
  out += "\n";
  for (const Json& row : rows_json(groups, settings, false)) {
    std::string line;
    for (const auto& [name, value] : row.items()) {
      line += (name == "problem" ? "" : ",") + csv_cell(value);
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace convscope
