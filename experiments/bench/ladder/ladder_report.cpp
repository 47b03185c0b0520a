// SPDX-License-Identifier: Apache-2.0
// ladder_report.cpp: the output of `bench conv2d --ladder`: a table for people, JSON and CSV for
// programs.
#include "experiments/bench/ladder/ladder_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/bench/bench_report.h"
#include "experiments/explain/text_layout.h"
#include "experiments/report/text_table.h"
#include "experiments/run_folder/environment.h"
#include "experiments/run_folder/machine_load.h"
#include "framework/io/json_text.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLineWidth = 92;

std::string rate(double value) { return fmt::format("{:.{}f}", value, value < 100 ? 2 : 0); }
std::string times(double value) {
  return value > 0 ? fmt::format("{:.{}f}x", value, value < 100 ? 2 : 0) : "-";
}
std::string percent(double value) {
  return value > 0 ? fmt::format("{:.{}f}%", value, value < 10 ? 2 : 1) : "-";
}

Json number(double value) { return value > 0 ? Json(value) : Json(); }

Json rung_json(const LadderResult& result, const LadderRow& row,
               const BenchReportSettings& settings) {
  Json out = {
      {"ladder", result.name},
      {"problem", result.problem.text()},
      {"direction", name_of(result.direction)},
      {"rung", row.rung},
      {"adds", row.adds},
      {"algorithm", row.algorithm},
      {"device", settings.device.str()},
      {"isa", row.isa.empty() ? Json() : Json(row.isa)},
      {"threads", row.threads},
      {"math", name_of(row.math)},
      {"prepares_each_call", row.prepares_each_call},
      {"status", row.wrong                 ? "wrong"
                 : !row.impossible.empty() ? "impossible"
                 : row.timed()             ? "ok"
                                           : "left out"},
      {"reason", row.left_out.empty() ? Json() : Json(row.left_out)},
  };
  out.update(times_json<Json>(row.time));
  out.update(Json{{"gflops_effective", number(row.gflops_effective)},
                  {"gflops_executed", number(row.gflops_executed)},
                  {"peak_percent", number(row.peak_percent)},
                  {"factor", number(row.factor)},
                  {"error_ratio", row.error_ratio},
                  {"impossible", row.impossible.empty() ? Json() : Json(row.impossible)}});
  return out;
}

}  // namespace

std::string ladder_table(const LadderResult& result) {
  std::string out = fmt::format(
      "ladder {}: {} of {}, {:.4g} MFLOP{}\n", result.name, name_of(result.direction),
      result.problem.text(), result.problem.nominal_flops() * 1e-6,
      result.peak_gflops > 0 ? fmt::format(", peak {:.0f} GFLOP/s", result.peak_gflops) : "");
  std::size_t width = 4;
  for (const LadderRow& row : result.rows) width = std::max(width, row.rung.size());
  out += fmt::format("  {:<{}}  {:>10}  {:>9}  {:>9}  {:>10}  {:>9}\n", "rung", width, "ms",
                     "GFLOP/s", "% of peak", "over below", "err/bound");
  for (const LadderRow& row : result.rows) {
    if (row.timed()) {
      out += fmt::format("  {:<{}}  {:>10}  {:>9}  {:>9}  {:>10}  {:>9.3f}\n", row.rung, width,
                         milliseconds(row.time.median_ms), rate(row.gflops_effective),
                         percent(row.peak_percent), times(row.factor), row.error_ratio);
    } else {
      out += fmt::format("  {:<{}}  {}{}\n", row.rung, width,
                         row.wrong                ? "WRONG RESULT, not timed: "
                         : row.impossible.empty() ? "left out: "
                                                  : "IMPOSSIBLE, its time does not count: ",
                         row.impossible.empty() ? row.left_out : row.impossible);
    }
    if (!row.adds.empty()) out += wrapped_text("      " + row.adds, 6, kLineWidth);
  }
  const LadderRow* const fastest = result.fastest();
  if (fastest != nullptr && fastest != result.first()) {
    out += fmt::format("  from {} to {}: {}\n", result.first()->rung, fastest->rung,
                       times(result.total_factor()));
  }
  return out;
}

std::string ladder_json(const std::vector<LadderResult>& results,
                        const BenchReportSettings& settings) {
  Json ladders = Json::array();
  for (const LadderResult& result : results) {
    Json rungs = Json::array();
    for (const LadderRow& row : result.rows) {
      Json one = rung_json(result, row, settings);
      for (const char* name : {"ladder", "problem", "direction", "device"}) one.erase(name);
      one["block_medians_ms"] = row.time.block_medians_ms;
      rungs.push_back(std::move(one));
    }
    ladders.push_back(
        {{"ladder", result.name},
         {"problem", result.problem.text()},
         {"direction", name_of(result.direction)},
         {"nominal_flops", result.problem.nominal_flops()},
         {"peak_gflops", number(result.peak_gflops)},
         {"total_factor", number(result.total_factor())},
         {"cores_of_others",
          result.cores_of_others ? Json(*rounded_load(result.cores_of_others)) : Json()},
         {"rungs", rungs}});
  }
  Json machine = Json::parse(environment_json(process_arguments()));
  machine["peaks"] = settings.peaks ? Json::parse(peaks_json_text(*settings.peaks)) : Json();
  const Json out = {{"format", kLadderFormat},
                    {"complete", settings.complete},
                    {"machine", machine},
                    {"settings",
                     {{"device", settings.device.str()},
                      {"threads", settings.threads},
                      {"cache", settings.cold ? "cold" : "warm"},
                      {"clock", settings.cpu_clock ? "cpu" : "wall"},
                      {"min_seconds", settings.min_seconds},
                      {"least_samples", settings.least_samples}}},
                    {"ladders", ladders}};
  return json_text(out, 1);
}

std::string ladder_csv(const std::vector<LadderResult>& results,
                       const BenchReportSettings& settings) {
  const Json names = rung_json(LadderResult{}, LadderRow{}, settings);  // an empty one gives them
  Json rows = Json::array();
  for (const LadderResult& result : results) {
    for (const LadderRow& row : result.rows) rows.push_back(rung_json(result, row, settings));
  }
  return json_rows_csv(names, rows);
}

}  // namespace convscope
