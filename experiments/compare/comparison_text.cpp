// SPDX-License-Identifier: Apache-2.0
// comparison_text.cpp: a comparison for people (Markdown, LaTeX) and for programs (CSV, JSON).
#include "experiments/compare/comparison_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "experiments/compare/compare_benches.h"
#include "experiments/compare/comparison_tables.h"
#include "experiments/report/table/latex_table.h"
#include "framework/io/json_text.h"
#include "framework/registry.h"

namespace convscope {
namespace {

using Json = nlohmann::ordered_json;

std::string side_line(const ComparedSide& side) {
  return cat(side.letter, ": ", side.given, " (", side.text, ")");
}

std::string facts_text(const std::string& what, const std::vector<FactRow>& rows,
                       const std::vector<ComparedSide>& sides) {
  if (rows.empty()) {
    return cat("\nThe ", what, what.ends_with("s") ? " are" : " is", " the same.\n");
  }
  std::vector<FactRow> telling = rows;
  std::erase_if(telling, [](const FactRow& row) { return row.is_default; });
  const std::size_t hidden = rows.size() - telling.size();
  std::string out =
      cat("\nWhat differs in the ", what, ":\n\n", to_markdown(facts_table(telling, sides)));
  if (hidden == 0) return out;
  return out + cat("\nNot shown: ", hidden, hidden == 1 ? " key" : " keys",
                   " with the default value in blocks that only some sides have.\n");
}

std::string total_text(const CompareResult& comparison, std::size_t side) {
  const BenchTotal total = total_of(comparison, side);
  std::string out = fmt::format(
      "{} / {}: geometric mean {:.3f} of {} {}; {} faster, {} slower, {} within noise",
      comparison.sides[side].letter, comparison.sides[0].letter, total.mean_ratio, total.rows,
      total.rows == 1 ? "row" : "rows", total.faster, total.slower, total.noise);
  if (total.unknown > 0) out += cat(", ", total.unknown, " unknown");
  return out;
}

std::vector<std::string> meanings(const CompareResult& comparison) {
  std::vector<std::string> out;
  const auto any_unknown = [](const auto& results) {
    return std::ranges::any_of(results,
                               [](const auto& r) { return r.outcome == Outcome::one_value; });
  };
  if (comparison.is_benchmark) {
    const auto tested = [](const BenchResult& row) { return std::isfinite(row.p); };
    out.push_back("A, B: median milliseconds; a ratio above 1 is slower");
    const bool any_p = std::ranges::any_of(comparison.rows, tested);
    if (any_p) {
      out.push_back(cat("p: two-sided test of ",
                        comparison.has_several_files
                            ? "Welch over the logarithms of the files' medians"
                            : "Mann and Whitney over the medians of blocks of samples",
                        ", with Holm's correction for all rows; faster, slower: p < 0.05"));
    }
    if (!std::ranges::all_of(comparison.rows, tested) && !comparison.has_several_files) {
      out.push_back(
          "without p: the file has no block_medians_ms; faster, slower: the middle 80 % of the "
          "samples do not overlap");
    }
    if (std::ranges::any_of(comparison.rows, &BenchResult::disturbed)) {
      out.push_back("busy: other programs used the cores while one of the two was measured");
    }
    if (any_unknown(comparison.rows)) out.push_back("unknown: the files say nothing about noise");
    if (!comparison.has_several_files) {
      out.push_back(
          "noise here is only that inside each file; two calls of one program may differ by more: "
          "several files for each side, a1.json,a2.json b1.json,b2.json, show that too");
    }
    return out;
  }
  out.push_back("±: standard deviation (n - 1) over the n runs of each side");
  out.push_back(cat("p: two-sided test of Welch",
                    comparison.sides.size() > 2 ? ", with Holm's correction for "
                                                  "the sides"
                                                : "",
                    "; better, worse: p < 0.05. Each metric is a separate test: of twenty that do "
                    "not differ, about one shows p < 0.05"));
  if (any_unknown(comparison.metrics)) {
    out.push_back("unknown: one run says nothing about noise; train both sides with more seeds");
  }
  return out;
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json facts_json(const std::vector<FactRow>& rows) {
  Json out = Json::array();
  for (const FactRow& row : rows) out.push_back({{"key", row.key}, {"values", row.values}});
  return out;
}

}  // namespace

std::string comparison_markdown(const CompareResult& comparison) {
  std::string out;
  for (const ComparedSide& side : comparison.sides) out += side_line(side) + "\n";
  out += facts_text(comparison.is_benchmark ? "settings" : "config", comparison.config,
                    comparison.sides);
  out += facts_text("environment", comparison.environment, comparison.sides);
  for (const std::string& warning : comparison.warnings) out += cat("\nNote: ", warning, ".\n");
  const std::string shared = shared_keys(comparison);
  for (std::size_t side = 1; side < comparison.sides.size(); ++side) {
    out += cat("\n", comparison.sides[side].letter, " against ", comparison.sides[0].letter,
               shared.empty() ? "" : cat(" (all rows: ", shared, ")"), ":\n\n",
               to_markdown(result_table(comparison, side)));
    if (comparison.is_benchmark) out += "\n" + total_text(comparison, side) + ".\n";
  }
  out += "\n";
  for (const std::string& line : meanings(comparison)) out += "- " + line + "\n";
  return out;
}

std::string comparison_csv(const CompareResult& comparison) {
  return to_csv(all_results(comparison));
}

std::string comparison_latex(const CompareResult& comparison) {
  std::string out;
  for (const ComparedSide& side : comparison.sides) out += "% " + side_line(side) + "\n";
  for (const std::string& warning : comparison.warnings) out += "% " + warning + "\n";
  for (std::size_t side = 1; side < comparison.sides.size(); ++side) {
    if (comparison.is_benchmark) out += "% " + total_text(comparison, side) + "\n";
    out += to_latex(result_table(comparison, side));
  }
  return out;
}

std::string comparison_json(const CompareResult& comparison) {
  Json sides = Json::array(), totals = Json::array();
  for (const ComparedSide& side : comparison.sides) {
    sides.push_back({{"side", side.letter},
                     {"given", side.given},
                     {comparison.is_benchmark ? "files" : "runs", side.files},
                     {"complete", side.complete}});
  }
  for (std::size_t side = 1; comparison.is_benchmark && side < sides.size(); ++side) {
    const BenchTotal total = total_of(comparison, side);
    totals.push_back({{"side", comparison.sides[side].letter},
                      {"rows", total.rows},
                      {"geometric_mean_ratio", number(total.mean_ratio)},
                      {"faster", total.faster},
                      {"slower", total.slower},
                      {"within_noise", total.noise},
                      {"unknown", total.unknown}});
  }
  Json out = {{"format", "convscope compare 1"},
              {"kind", comparison.is_benchmark ? "benchmarks" : "runs"},
              {"sides", sides},
              {comparison.is_benchmark ? "settings" : "config", facts_json(comparison.config)},
              {"environment", facts_json(comparison.environment)},
              {"warnings", comparison.warnings},
              {"remarks", comparison.remarks},
              {"results", Json::parse(to_json(all_results(comparison)))}};
  if (comparison.is_benchmark) {
    out["totals"] = totals;
    out["unmatched"] = Json::array();
    for (const UnmatchedRow& row : comparison.unmatched) {
      out["unmatched"].push_back(
          {{"key", row.key},
           {"in", comparison.sides[row.only_first ? 0 : row.side].letter},
           {"not_in", comparison.sides[row.only_first ? row.side : 0].letter}});
    }
  }
  return json_text(out);
}

}  // namespace convscope
