// SPDX-License-Identifier: Apache-2.0
// comparison.cpp: what a comparison of runs or of benchmarks finds.
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

std::vector<std::string> regressions(const CompareResult& comparison, double factor) {
  std::vector<std::string> out;
  const auto counts = [](Outcome outcome) {
    return outcome == Outcome::worse || outcome == Outcome::one_value;
  };
  for (const BenchResult& row : comparison.rows) {
    if (!(row.ratio > factor) || !counts(row.outcome)) continue;
    out.push_back(fmt::format("{}: {} takes {:.3f} times as long",
                              comparison.sides[row.side].letter, join(row.key, " "), row.ratio));
  }
  for (const MetricResult& result : comparison.metrics) {
    const double ratio = result.other.mean / result.first.mean;
    if (result.metric != "avg_step" || !(ratio > factor) || !counts(result.outcome)) continue;
    out.push_back(fmt::format("{}: a step takes {:.3f} times as long",
                              comparison.sides[result.side].letter, ratio));
  }
  return out;
}

}  // namespace convscope
