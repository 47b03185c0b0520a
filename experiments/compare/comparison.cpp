// SPDX-License-Identifier: Apache-2.0
// comparison.cpp: the findings of a comparison of runs or of benchmarks.
#include "experiments/compare/comparison.h"

#include <fmt/format.h>

#include "framework/registry.h"

namespace convscope {

std::string text_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::better:
      return "better";
    case Outcome::worse:
      return "worse";
    case Outcome::noise:
      return "within noise";
    case Outcome::same:
      return "same";
    case Outcome::one_value:
      break;
  }
  return "unknown";
}

namespace {

constexpr int kRegression = 7, kUndecided = 9;  // exit codes
constexpr std::size_t kMaxNamed = 20;           // rows that are named individually

// Keeps the first lines, and adds how many were cut.
void cut(std::vector<std::string>& lines) {
  if (lines.size() <= kMaxNamed) return;
  const std::size_t more = lines.size() - kMaxNamed;
  lines.resize(kMaxNamed);
  lines.push_back(cat("and ", more, " more"));
}

}  // namespace

int Gate::exit_code() const {
  if (!slower.empty() || !missing.empty()) return kRegression;
  return undecided.empty() ? 0 : kUndecided;
}

Gate gate_of(const CompareResult& comparison, double factor, bool both_ways) {
  Gate out;
  const auto letter = [&](std::size_t side) { return comparison.sides[side].letter; };
  const auto judge = [&](const auto& result, double ratio, const std::string& what) {
    const bool counts = result.outcome == Outcome::worse || result.outcome == Outcome::one_value;
    if (!(ratio > factor) || !counts) return;
    (result.disturbed ? out.undecided : out.slower)
        .push_back(
            fmt::format("{}: {} takes {:.3f} times as long", letter(result.side), what, ratio));
  };
  for (const BenchResult& row : comparison.rows) judge(row, row.ratio, join(row.key, " "));
  for (const ComparedSide& side : comparison.sides) {
    if (side.complete) continue;
    out.missing.push_back(
        cat(side.letter, ": ", side.given, " was not finished (complete: false)"));
  }
  for (const UnmatchedRow& row : comparison.unmatched) {
    if (!row.only_first && !both_ways) continue;
    out.missing.push_back(cat(join(row.key, " "), " is in ", letter(row.only_first ? 0 : row.side),
                              " and not in ", letter(row.only_first ? row.side : 0)));
  }
  std::vector<bool> timed(comparison.sides.size());
  for (const MetricResult& result : comparison.metrics) {
    if (result.metric != "avg_step") continue;
    timed[result.side] = true;
    judge(result, result.other.mean / result.first.mean, "a step");
  }
  for (std::size_t i = 1; i < timed.size() && !comparison.is_benchmark; ++i) {
    if (timed[i]) continue;
    out.missing.push_back(
        cat("avg_step, the time of a step, is not known for both ", letter(0), " and ", letter(i)));
  }
  for (auto* lines : {&out.slower, &out.undecided, &out.missing}) cut(*lines);
  return out;
}

}  // namespace convscope
