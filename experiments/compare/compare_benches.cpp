// SPDX-License-Identifier: Apache-2.0
// compare_benches.cpp: compares benchmarks, row by row.
#include "experiments/compare/compare_benches.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/bench/statistics.h"
#include "experiments/compare/rank_test.h"
#include "experiments/compare/student_t.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kFewestBlocks = 4;  // with 3 and 3 blocks, p is at least 0.1

MeanStd logarithms(const std::vector<double>& values) {
  std::vector<double> out;
  for (const double value : values) out.push_back(std::log(value));
  return mean_std(out);
}

BenchResult result_of(const TimedRow& first, const TimedRow& other, std::size_t side) {
  BenchResult out{.key = first.key,
                  .side = side,
                  .first_ms = first.median_ms,
                  .other_ms = other.median_ms,
                  .ratio = other.median_ms / first.median_ms,
                  .low = kNan,
                  .high = kNan,
                  .p = kNan,
                  .p_adjusted = kNan,
                  .outcome = Outcome::one_value,
                  .disturbed = first.disturbed || other.disturbed};
  if (std::min(first.files_ms.size(), other.files_ms.size()) >= 2) {
    const MeanStd a = logarithms(first.files_ms), b = logarithms(other.files_ms);
    if (a.std == 0 && b.std == 0) return out;  // copies of one file
    const WelchTest test = welch_test(a, b);
    out.p = test.p;
    out.low = std::exp(test.low);
    out.high = std::exp(test.high);
    out.outcome = Outcome::noise;
  } else if (std::min(first.blocks_ms.size(), other.blocks_ms.size()) >= kFewestBlocks) {
    const RankTest test = rank_test(first.blocks_ms, other.blocks_ms);
    out.p = test.p;
    if (test.ratio_low > 0) {
      out.low = test.ratio_low;
      out.high = test.ratio_high;
    }
    out.outcome = Outcome::noise;  // until all p values are known
  } else if (first.p10_ms > 0 && first.p90_ms > first.p10_ms && other.p10_ms > 0 &&
             other.p90_ms > other.p10_ms) {
    out.outcome = other.p10_ms > first.p90_ms   ? Outcome::worse
                  : other.p90_ms < first.p10_ms ? Outcome::better
                                                : Outcome::noise;
  }
  return out;
}

void judge(std::vector<BenchResult>& rows) {
  std::vector<double> p;
  for (const BenchResult& row : rows) p.push_back(row.p);
  const std::vector<double> adjusted = holm(p);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    BenchResult& row = rows[i];
    row.p_adjusted = adjusted[i];
    if (std::isnan(p[i]) || !(adjusted[i] < kSignificance)) continue;
    row.outcome = row.ratio > 1 ? Outcome::worse : Outcome::better;
  }
}

[[noreturn]] void refuse_nothing_in_common(const BenchSide& first, const BenchSide& other) {
  // Finds the keys in which the two sides have no value in common.
  std::vector<std::string> apart;
  for (std::size_t k = 0; k < first.key_names.size(); ++k) {
    const auto has = [&](const BenchSide& side, const std::string& value) {
      return std::ranges::any_of(side.rows,
                                 [&](const TimedRow& row) { return row.key[k] == value; });
    };
    const bool shared = std::ranges::any_of(
        first.rows, [&](const TimedRow& row) { return has(other, row.key[k]); });
    if (shared) continue;
    apart.push_back(
        cat(first.key_names[k], " ", first.rows[0].key[k], " and ", other.rows[0].key[k]));
  }
  fail(ErrorKind::kInvalid, "compare",
       cat("expected rows that both files have, by ", join(first.key_names), ", got none in ",
           first.given, " and ", other.given,
           apart.empty() ? "" : cat(": they have ", join(apart, "; "))));
}

}  // namespace

namespace {

// Adds the rows that only one side has: first those of the first side, then those of the other
// side. Rows in only some files of a side (`dropped`) are not compared, so they are added, too.
void add_unmatched(CompareResult& out, const BenchSide& first, const BenchSide& other,
                   std::size_t side) {
  const auto add = [&](const BenchSide& mine, const BenchSide& its, bool only_first) {
    std::vector<std::vector<std::string>> keys = mine.dropped;
    for (const TimedRow& row : mine.rows) keys.push_back(row.key);
    for (std::vector<std::string>& key : keys) {
      if (std::ranges::count(its.rows, key, &TimedRow::key) > 0) continue;
      const auto same = [&](const UnmatchedRow& row) { return row.side == side && row.key == key; };
      if (std::ranges::any_of(out.unmatched, same)) continue;  // both sides lack it in some file
      out.unmatched.push_back({.key = std::move(key), .side = side, .only_first = only_first});
    }
  };
  add(first, other, true);
  add(other, first, false);
}

}  // namespace

CompareResult compare_benches(const std::vector<BenchSide>& sides) {
  CompareResult out;
  out.is_benchmark = true;
  std::vector<const Facts*> settings, environments;
  std::vector<std::string> letters, busy_sides;
  const BenchSide& first = sides.at(0);
  out.key_names = first.key_names;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    const BenchSide& side = sides[i];
    if (side.kind != first.kind) {
      fail(ErrorKind::kInvalid, "compare",
           cat("expected files of one kind because their rows are compared, got ", first.given,
               " of bench ", first.kind, " and ", side.given, " of bench ", side.kind));
    }
    letters.emplace_back(1, static_cast<char>('A' + i));
    out.sides.push_back({.letter = letters.back(),
                         .given = side.given,
                         .text = cat(side.rows.size(), side.rows.size() == 1 ? " row" : " rows",
                                     side.files.size() > 1 ? cat(", ", side.files.size(), " files")
                                                           : std::string()),
                         .files = side.files,
                         .complete = side.complete});
    settings.push_back(&side.settings);
    environments.push_back(&side.environment);
    if (side.not_timed > 0) {
      out.remarks.push_back(cat(side.given, ": ", side.not_timed,
                                side.not_timed == 1 ? " row was" : " rows were", " not timed"));
    }
    if (!side.dropped.empty()) {
      out.remarks.push_back(cat(side.given, ": ", side.dropped.size(),
                                side.dropped.size() == 1 ? " row is" : " rows are",
                                " not in all of its files"));
    }
    if (!side.complete) {
      out.warnings.push_back(cat(letters.back(), " was not finished (", side.given,
                                 "): it holds the rows that were measured until then"));
    }
    const auto busy = std::ranges::count(side.rows, true, &TimedRow::disturbed);
    if (busy > 0)
      busy_sides.push_back(cat(letters.back(), " (", busy, " of ", side.rows.size(), ")"));
  }
  out.has_several_files =
      std::ranges::all_of(sides, [](const BenchSide& side) { return side.files.size() > 1; });
  out.config = differing(settings);
  out.environment = differing(environments);
  if (!busy_sides.empty()) {
    out.warnings.push_back(cat("other programs used the cores while rows of ",
                               join(busy_sides, " and "),
                               " were measured: those times may be too long"));
  }
  const std::vector<std::string> machine_messages = machine_warnings(letters, environments);
  out.warnings.insert(out.warnings.end(), machine_messages.begin(), machine_messages.end());
  for (std::size_t i = 1; i < sides.size(); ++i) {
    std::size_t shared = 0;
    for (const TimedRow& row : first.rows) {
      const auto same = std::ranges::find(sides[i].rows, row.key, &TimedRow::key);
      if (same == sides[i].rows.end()) continue;
      out.rows.push_back(result_of(row, *same, i));
      ++shared;
    }
    add_unmatched(out, first, sides[i], i);
    if (shared == 0) refuse_nothing_in_common(first, sides[i]);
    const std::size_t mine = first.rows.size() - shared, its = sides[i].rows.size() - shared;
    if (mine + its > 0) {
      out.remarks.push_back(cat("compared: the ", shared, " rows that both have; ", mine,
                                " are only in ", first.given, " and ", its, " only in ",
                                sides[i].given));
    }
  }
  judge(out.rows);
  return out;
}

BenchTotal total_of(const CompareResult& comparison, std::size_t side) {
  BenchTotal out;
  std::vector<double> ratios;
  for (const BenchResult& row : comparison.rows) {
    if (row.side != side) continue;
    ratios.push_back(row.ratio);
    out.faster += row.outcome == Outcome::better ? 1 : 0;
    out.slower += row.outcome == Outcome::worse ? 1 : 0;
    out.noise += row.outcome == Outcome::noise ? 1 : 0;
    out.unknown += row.outcome == Outcome::one_value ? 1 : 0;
  }
  out.rows = ratios.size();
  out.mean_ratio = geometric_mean(ratios);
  return out;
}

}  // namespace convscope
