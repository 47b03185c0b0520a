// SPDX-License-Identifier: Apache-2.0
// bench_report.h: the output of a benchmark: a table for people, JSON and CSV for programs.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "experiments/bench/conv2d_bench.h"

namespace convscope {

// Values that appear once at the head of the JSON.
struct BenchReportSettings {
  Device device;
  int threads = 0;
  bool cold = false;
  bool cpu_clock = false;
  WeightUse weights = WeightUse::once;
  double min_seconds = 0;
  int least_samples = 0;
  std::string baseline_name, baseline_version;  // "" without a baseline
  std::optional<CpuPeaks> peaks;
  const char* operation = "conv2d";  // of the operator
  bool complete = false;             // every case was measured
};

// An additional number of a problem; a column in JSON and CSV.
struct BenchFact {
  std::string name;
  double value = 0;
};

// The rows of one problem and direction, of any operator, in the form that the reports need.
struct ReportedGroup : BaselineBenchRows {
  std::string problem;  // as text
  double nominal_flops = 0, nominal_bytes = 0;
  std::string types;   // types of x, w, accumulators, y: "u8:i8:i32:u8"; "f32": all are f32
  bool bytes = false;  // the operands are int8 codes
  Direction direction = Direction::forward;
  int threads = 0;
  std::vector<BenchRow> rows;
  std::vector<BenchRefusal> refusals;
  std::string skipped;
  // Facts that only some operators have. In a group with facts, each row also shows the ratio of
  // executed to useful multiplications.
  std::vector<BenchFact> facts = {};
  std::optional<double> cores_of_others = {};  // cores busy with other programs
  std::string remark = {};                     // the facts in words, below the head of the table

  template <class Problem>
  ReportedGroup(const BenchGroup<Problem>& group)  // NOLINT: a view
      : problem(group.problem.text()),
        nominal_flops(group.problem.nominal_flops()),
        nominal_bytes(group.problem.nominal_bytes()),
        types(group.problem.types ? group.problem.types->text() : name_of(group.problem.dtype)),
        bytes(is_code(operand_type_of(group.problem))),
        direction(group.direction),
        threads(group.threads),
        rows(group.rows),
        refusals(group.refusals),
        skipped(group.skipped) {}
  ReportedGroup(const Conv2dBenchGroup& group)  // NOLINT: a view
      : ReportedGroup(static_cast<const BenchGroup<Conv2dProblem>&>(group)) {
    static_cast<BaselineBenchRows&>(*this) = group;
  }
};
using ReportedGroups = std::vector<ReportedGroup>;

// Returns a time with four significant digits, at most six of them decimals.
std::string milliseconds(double value);

// Returns the table of a problem and direction: algorithms, variants of the baseline, refusals.
CONVSCOPE_API std::string bench_table(const ReportedGroup& group);
// Returns a summary for each direction: the geometric mean and the least of the ratios to the
// baseline over all groups, and how often `auto` chose well. Returns "" without any ratio or
// choice.
CONVSCOPE_API std::string bench_summary(const ReportedGroups& groups);

// Returns the report as JSON: machine, settings, rows, rows of the baseline, refusals.
CONVSCOPE_API std::string bench_json(const ReportedGroups& groups,
                                     const BenchReportSettings& settings);
// Returns the rows of the JSON as CSV with a header line.
CONVSCOPE_API std::string bench_csv(const ReportedGroups& groups,
                                    const BenchReportSettings& settings);

// Returns samples and times of a row as a JSON object; null: not timed.
template <class Json>
Json times_json(const TimingSummary& time) {
  const auto ms = [](double value) {
    return value > 0 && std::isfinite(value) ? Json(value) : Json();
  };
  return {{"samples", time.samples},
          {"median_ms", ms(time.median_ms)},
          {"p10_ms", ms(time.p10_ms)},
          {"p90_ms", ms(time.p90_ms)},
          {"min_ms", ms(time.min_ms)}};
}

// Returns the measured peaks as a JSON object (peaks_json_text) or as a table.
CONVSCOPE_API std::string peaks_json_text(const CpuPeaks& peaks);
CONVSCOPE_API std::string peaks_text(const CpuPeaks& peaks);

// Returns whether a result of this library or of the baseline was wrong, or a time was impossible.
CONVSCOPE_API bool any_wrong(const ReportedGroups& groups);

}  // namespace convscope
