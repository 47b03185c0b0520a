// SPDX-License-Identifier: Apache-2.0
// comparison_tables.cpp: the tables of a comparison.
#include "experiments/compare/comparison_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "framework/registry.h"

namespace convscope {
namespace {

TableCell number(double value) { return std::isfinite(value) ? TableCell(value) : TableCell(); }

// Returns a difference with as many decimals as the means have.
std::string signed_text(double value, int digits) {
  const std::string text = cell_text(std::abs(value), digits);
  return (value < 0 ? "-" : "+") + text;
}

TableCell interval(double low, double high, const auto& text) {
  if (!std::isfinite(low) || !std::isfinite(high)) return {};
  return cat(text(low), " to ", text(high));
}

TableCell p_cell(double p) {
  if (!std::isfinite(p)) return {};
  return p < 1e-4 ? std::string("< 0.0001") : fmt::format("{:.4f}", p);
}

bool several_sides(const CompareResult& comparison) { return comparison.sides.size() > 2; }

TextTable metric_table(const CompareResult& comparison, std::size_t side) {
  const std::string first = comparison.sides[0].letter, other = comparison.sides[side].letter;
  TextTable table;
  table.columns = {
      {"metric"},     {first}, {other},           {"n"},
      {"diff"},       {"%"},   {"95 % interval"}, {several_sides(comparison) ? "p (Holm)" : "p"},
      {other + " is"}};
  for (const MetricResult& result : comparison.metrics) {
    if (result.side != side) continue;
    const int digits = result.digits;
    const auto text = [&](double value) { return signed_text(value, digits); };
    table.rows.push_back(
        {result.unit.empty() ? result.metric : cat(result.metric, " (", result.unit, ")"),
         mean_std_text(result.first, digits), mean_std_text(result.other, digits),
         cat(result.first.count, " / ", result.other.count), text(result.difference),
         std::isfinite(result.percent) ? TableCell(fmt::format("{:+.2f}", result.percent))
                                       : TableCell(),
         interval(result.low, result.high, text), p_cell(result.p_adjusted),
         text_of(result.outcome)});
  }
  return table;
}

std::string ratio_text(double value) { return fmt::format("{:.3f}", value); }

std::vector<std::size_t> telling_keys(const CompareResult& comparison) {
  std::vector<std::size_t> out;
  for (std::size_t k = 0; k < comparison.key_names.size(); ++k) {
    const auto differs = [&](const BenchResult& row) {
      return row.key[k] != comparison.rows.front().key[k];
    };
    if (std::ranges::any_of(comparison.rows, differs)) out.push_back(k);
  }
  return out;
}

TextTable row_table(const CompareResult& comparison, std::size_t side) {
  const std::string first = comparison.sides[0].letter, other = comparison.sides[side].letter;
  TextTable table;
  const std::vector<std::size_t> keys = telling_keys(comparison);
  for (const std::size_t k : keys) table.columns.push_back({comparison.key_names[k]});
  const std::vector<TextTable::Column> rest = {{.name = first, .digits = 4, .unit = "ms"},
                                               {.name = other, .digits = 4, .unit = "ms"},
                                               {other + " / " + first},
                                               {"95 % interval"},
                                               {"p (Holm)"},
                                               {other + " is"}};
  table.columns.insert(table.columns.end(), rest.begin(), rest.end());
  for (const BenchResult& row : comparison.rows) {
    if (row.side != side) continue;
    std::vector<TableCell>& cells = table.rows.emplace_back();
    for (const std::size_t k : keys) cells.emplace_back(row.key[k]);
    cells.insert(cells.end(), {TableCell(row.first_ms), TableCell(row.other_ms),
                               TableCell(ratio_text(row.ratio)),
                               interval(row.low, row.high, ratio_text), p_cell(row.p_adjusted),
                               TableCell(cat(row.outcome == Outcome::better  ? "faster"
                                             : row.outcome == Outcome::worse ? "slower"
                                                                             : text_of(row.outcome),
                                             row.disturbed ? " (busy)" : ""))});
  }
  return table;
}

}  // namespace

TextTable facts_table(const std::vector<FactRow>& rows, const std::vector<ComparedSide>& sides) {
  TextTable table;
  table.columns.push_back({"key"});
  for (const ComparedSide& side : sides) table.columns.push_back({side.letter});
  for (const FactRow& row : rows) {
    std::vector<TableCell>& cells = table.rows.emplace_back();
    cells.emplace_back(row.key);
    for (const std::string& value : row.values) {
      cells.push_back(value == "-" ? TableCell() : TableCell(value));
    }
  }
  return table;
}

TextTable result_table(const CompareResult& comparison, std::size_t side) {
  return comparison.is_benchmark ? row_table(comparison, side) : metric_table(comparison, side);
}

std::string shared_keys(const CompareResult& comparison) {
  const std::vector<std::size_t> keys = telling_keys(comparison);
  std::vector<std::string> out;
  for (std::size_t k = 0; k < comparison.key_names.size() && !comparison.rows.empty(); ++k) {
    if (std::ranges::count(keys, k) > 0) continue;
    out.push_back(cat(comparison.key_names[k], " ", comparison.rows.front().key[k]));
  }
  return join(out);
}

TextTable all_results(const CompareResult& comparison) {
  TextTable table;
  const auto letter = [&](std::size_t side) { return comparison.sides[side].letter; };
  if (comparison.is_benchmark) {
    table.columns = {{"side"}};
    for (const std::string& name : comparison.key_names) table.columns.push_back({name});
    for (const char* name : {"first_ms", "ms", "ratio", "ratio_low", "ratio_high", "p", "p_holm",
                             "outcome", "disturbed"}) {
      table.columns.push_back({name});
    }
    for (const BenchResult& row : comparison.rows) {
      std::vector<TableCell>& cells = table.rows.emplace_back();
      cells.emplace_back(letter(row.side));
      for (const std::string& value : row.key) cells.emplace_back(value);
      for (const double value :
           {row.first_ms, row.other_ms, row.ratio, row.low, row.high, row.p, row.p_adjusted}) {
        cells.push_back(number(value));
      }
      cells.emplace_back(text_of(row.outcome));
      cells.emplace_back(row.disturbed);
    }
    return table;
  }
  table.columns = {{"side"},           {"metric"}, {"unit"},         {"first_n"},
                   {"first", 6, true}, {"n"},      {"mean", 6, true}};
  for (const char* name :
       {"difference", "percent", "low", "high", "p", "p_holm", "outcome", "disturbed"}) {
    table.columns.push_back({name});
  }
  for (const MetricResult& result : comparison.metrics) {
    table.rows.push_back({letter(result.side), result.metric, result.unit, result.first.count,
                          result.first, result.other.count, result.other, number(result.difference),
                          number(result.percent), number(result.low), number(result.high),
                          number(result.p), number(result.p_adjusted), text_of(result.outcome),
                          result.disturbed});
  }
  return table;
}

}  // namespace convscope
