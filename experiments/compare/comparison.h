// SPDX-License-Identifier: Apache-2.0
// comparison.h: the result of comparing runs or benchmarks: which facts differ, and whether the
// metrics or times differ by more than noise.
#pragma once

#include <string>
#include <vector>

#include "experiments/compare/facts.h"
#include "experiments/report/text_table.h"

namespace convscope {

inline constexpr double kSignificance = 0.05;

// How a side's result compares with that of the first side.
enum class Outcome {
  better,     // by more than noise
  worse,      // by more than noise
  noise,      // the difference is no larger than noise explains
  same,       // equal
  one_value,  // unknown: a single run or too few samples do not show the noise
};
CONVSCOPE_API std::string text_of(Outcome outcome);

// One side of a comparison: its letter ("A") and the argument that names the side.
struct ComparedSide {
  std::string letter, given, text;  // text: "3 runs, seeds 1, 2, 3"
  std::vector<std::string> files;   // its runs, or its file
  bool complete = true;             // false: the file of an unfinished benchmark
};

// One metric of runs: side `side` compared with side 0. NaN stands for a missing number.
struct MetricResult {
  std::string metric, unit;
  int digits = 4;
  std::size_t side = 1;
  MeanStd first, other;
  double difference = 0, percent = 0;  // other - first
  double low = 0, high = 0;            // 95 % confidence interval of the difference
  double p = 0, p_adjusted = 0;        // adjusted: Holm over the sides, where there are several
  Outcome outcome = Outcome::noise;
  bool disturbed = false;  // other programs kept the cores busy on one side or both
};

// One row of benchmarks that both sides have.
struct BenchResult {
  std::vector<std::string> key;  // parallel to CompareResult::key_names
  std::size_t side = 1;
  double first_ms = 0, other_ms = 0, ratio = 0;  // medians; other / first
  double low = 0, high = 0;                      // 95 % confidence interval of the ratio
  double p = 0, p_adjusted = 0;                  // adjusted: Holm over all rows and sides
  Outcome outcome = Outcome::noise;
  bool disturbed = false;  // other programs kept the cores busy on one side or both
};

// A row of benchmarks that only side 0 or only side `side` has.
struct UnmatchedRow {
  std::vector<std::string> key;
  std::size_t side = 1;
  bool only_first = true;  // only side 0 has it
};

struct CompareResult {
  bool is_benchmark = false;
  bool has_several_files = false;  // every side has several: the noise between calls is known
  std::vector<ComparedSide> sides;
  std::vector<FactRow> config, environment;
  std::vector<std::string> warnings;  // about what is compared
  std::vector<std::string> remarks;   // about what was left out
  std::vector<MetricResult> metrics;
  std::vector<std::string> key_names;
  std::vector<BenchResult> rows;
  std::vector<UnmatchedRow> unmatched;
};

// The findings of `--fail-above`, one sentence each. A time is too long when it exceeds the first
// side's time by more than the factor and by more than the noise. If the noise is unknown, only the
// factor matters. For runs, the times of a training step are compared.
struct Gate {
  std::vector<std::string> slower;
  std::vector<std::string> undecided;  // slower, but the machine was busy on one side or both
  std::vector<std::string> missing;    // rows that one side lacks, unfinished files
  // Returns 7 if something is slower or missing, else 9 if something is undecided, else 0.
  CONVSCOPE_API int exit_code() const;
};
// Returns the findings. A row that only another side has is missing with `both_ways`; otherwise it
// is new, which is not a finding.
CONVSCOPE_API Gate gate_of(const CompareResult& comparison, double factor, bool both_ways = true);

}  // namespace convscope
