// SPDX-License-Identifier: Apache-2.0
// bench_report.cpp: the output of a benchmark: a table for people, JSON and CSV for programs.
#include "experiments/bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace convscope {
namespace {

constexpr double kMiB = 1048576.0;

std::string percent(double value) { return value > 0 ? fmt::format("{:.0f}%", value) : "-"; }
std::string ratio_text(double value) { return value > 0 ? fmt::format("{:.2f}x", value) : "-"; }
std::string gflops(double value) { return fmt::format("{:.{}f}", value, value < 100 ? 1 : 0); }

using Cells = std::vector<std::string>;

// Returns a table with columns as wide as their longest cell. The first column is left-aligned, the
// others are right-aligned.
std::string aligned(const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths;
  for (const Cells& cells : lines) {
    widths.resize(std::max(widths.size(), cells.size()));
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string out;
  for (const Cells& cells : lines) {
    std::string line = "  ";
    for (std::size_t i = 0; i < cells.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", cells[i], widths[i])
                     : fmt::format("  {:>{}}", cells[i], widths[i]);
    }
    out += line + "\n";
  }
  return out;
}

Cells cells_of(const BenchRow& row, const BaselineBenchRow* own, const BaselineBenchRow* plain,
               bool with_waste) {
  const auto median_ratio = [&](const BaselineBenchRow* baseline) {
    return baseline == nullptr ? std::string("-")
                               : ratio_text(baseline->time.median_ms / row.time.median_ms);
  };
  const auto least_ratio = [&](const BaselineBenchRow* baseline) {
    return baseline == nullptr ? std::string("-")
                               : ratio_text(baseline->time.min_ms / row.time.min_ms);
  };
  Cells out = {(row.auto_choice ? "* " : "  ") + row.algorithm,
               milliseconds(row.time.median_ms),
               milliseconds(row.time.p10_ms),
               milliseconds(row.time.p90_ms),
               milliseconds(row.time.min_ms),
               row.prepare_ms > 0 ? milliseconds(row.prepare_ms) : "-",
               gflops(row.gflops_effective),
               gflops(row.gflops_executed),
               percent(row.roofline_percent),
               fmt::format("{:.2f}", static_cast<double>(row.workspace_bytes) / kMiB),
               fmt::format("{:.3f}", row.error_ratio),
               median_ratio(own),
               least_ratio(own),
               median_ratio(plain)};
  if (with_waste) out.push_back(ratio_text(row.executed_per_useful));
  return out;
}

Cells cells_of(const BaselineBenchRow& row, const std::string& baseline) {
  return {fmt::format("  {} {}{} [{}]", baseline, row.algorithm, row.plain ? " (plain)" : "",
                      row.implementation),
          milliseconds(row.time.median_ms),
          milliseconds(row.time.p10_ms),
          milliseconds(row.time.p90_ms),
          milliseconds(row.time.min_ms),
          "-",
          gflops(row.gflops_effective),
          "-",
          "-",
          fmt::format("{:.2f}", static_cast<double>(row.workspace_bytes) / kMiB),
          fmt::format("{:.3f}", row.error_ratio)};
}

// ---- summary -----------------------------------------------------------------------------------

struct Ratios {
  std::vector<double> own, plain;
  std::map<std::string, std::vector<double>> by_algorithm;  // of the baseline, own layout
};

const BenchRow* fastest(const ReportedGroup& group) {
  for (const BenchRow& row : group.rows) {
    if (row.counts()) return &row;  // rows are sorted
  }
  return nullptr;
}

void add_ratios(Ratios& ratios, const ReportedGroup& group, const BenchRow& row) {
  if (const BaselineBenchRow* best = group.best_baseline(false)) {
    ratios.own.push_back(best->time.median_ms / row.time.median_ms);
  }
  if (const BaselineBenchRow* best = group.best_baseline(true)) {
    ratios.plain.push_back(best->time.median_ms / row.time.median_ms);
  }
  for (const BaselineBenchRow& baseline : group.baseline_rows) {
    if (baseline.plain || baseline.time.samples == 0) continue;
    ratios.by_algorithm[baseline.algorithm].push_back(baseline.time.median_ms / row.time.median_ms);
  }
}

std::string mean_of(const std::vector<double>& ratios) {
  return ratios.empty() ? "-" : ratio_text(geometric_mean(ratios));
}
std::string least_of(const std::vector<double>& ratios) {
  return ratios.empty() ? "-" : ratio_text(*std::ranges::min_element(ratios));
}

// Returns the baseline's algorithms that were timed, in any group.
std::vector<std::string> baseline_algorithms(const ReportedGroups& groups) {
  std::vector<std::string> out;
  for (const ReportedGroup& group : groups) {
    for (const BaselineBenchRow& row : group.baseline_rows) {
      const bool known = std::ranges::count(out, row.algorithm) > 0;
      if (row.time.samples > 0 && !row.plain && !known) out.push_back(row.algorithm);
    }
  }
  return out;
}

std::vector<Cells> ratio_lines(const std::string& what,
                               const std::map<std::string, Ratios>& ratios_of_algorithm,
                               const std::vector<std::string>& columns) {
  std::vector<Cells> out;
  for (const auto& [name, ratios] : ratios_of_algorithm) {
    if (ratios.own.empty() && ratios.plain.empty()) continue;
    Cells cells = {fmt::format("{} {}", what, name),
                   std::to_string(ratios.own.size()),
                   mean_of(ratios.own),
                   least_of(ratios.own),
                   mean_of(ratios.plain),
                   least_of(ratios.plain)};
    for (const std::string& column : columns) {
      const auto found = ratios.by_algorithm.find(column);
      const bool some = found != ratios.by_algorithm.end();
      cells.push_back(some ? mean_of(found->second) : "-");
      cells.push_back(some ? least_of(found->second) : "-");
    }
    out.push_back(cells);
  }
  return out;
}

// One line for each reason.
std::string refusals_text(const std::vector<BenchRefusal>& refusals) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_reason;
  for (const BenchRefusal& one : refusals) {
    const auto same = std::ranges::find_if(
        by_reason, [&](const auto& entry) { return entry.first == one.reason; });
    if (same == by_reason.end()) {
      by_reason.push_back({one.reason, {one.name}});
    } else {
      same->second.push_back(one.name);
    }
  }
  std::string out;
  for (const auto& [reason, names] : by_reason) {
    out += fmt::format("    {} {}: {}\n", join(names), names.size() == 1 ? "refuses" : "refuse",
                       reason);
  }
  return out;
}

}  // namespace

std::string milliseconds(double value) {
  return fmt::format("{:.{}f}", value, value < 0.01 ? 6 : value < 1 ? 4 : value < 100 ? 3 : 1);
}

std::string bench_table(const ReportedGroup& group) {
  std::string out =
      fmt::format("{}  {}  {:.4g} MFLOP  {} thread{}\n", group.problem, name_of(group.direction),
                  group.nominal_flops * 1e-6, group.threads, group.threads == 1 ? "" : "s");
  if (!group.remark.empty()) out += cat("  ", group.remark, "\n");
  if (!group.skipped.empty()) return out + "  skipped: " + group.skipped + "\n";
  const BaselineBenchRow* const own = group.best_baseline(false);
  const BaselineBenchRow* const plain = group.best_baseline(true);
  std::vector<Cells> lines = {{"  algorithm", "median ms", "p10", "p90", "min", "prepare",
                               "GFLOP/s eff.", "exec.", "roof", "work MiB", "err/bound",
                               "vs baseline", "by min", "vs plain"}};
  const bool with_waste = !group.facts.empty();
  if (with_waste) lines[0].emplace_back("products");
  std::string wrong;
  for (const BenchRow& row : group.rows) {
    if (row.wrong.empty()) {
      lines.push_back(cells_of(row, own, plain, with_waste));
    } else {
      wrong += fmt::format("    {}: WRONG RESULT, not timed: {}\n", row.algorithm, row.wrong);
    }
    if (!row.impossible.empty()) {
      wrong += fmt::format("    {}: IMPOSSIBLE, its times do not count: {}\n", row.algorithm,
                           row.impossible);
    }
  }
  for (const BaselineBenchRow& row : group.baseline_rows) {
    if (row.wrong.empty()) {
      lines.push_back(cells_of(row, group.baseline));
    } else {
      wrong += fmt::format("    {} {}: WRONG RESULT, not timed: {}\n", group.baseline,
                           row.algorithm, row.wrong);
    }
  }
  if (lines.size() > 1) out += aligned(lines);
  out += wrong;
  return out + refusals_text(group.refusals);
}

std::string bench_summary(const ReportedGroups& groups) {
  int choices = 0, good_choices = 0;
  const std::vector<std::string> columns = baseline_algorithms(groups);
  std::vector<Cells> lines = {{"", "problems", "best", "least", "plain", "least"}};
  for (const std::string& column : columns) {
    lines[0].push_back(column);
    lines[0].emplace_back("least");
  }
  // Integer problems have separate lines: no mean mixes both.
  const auto add_lines = [&](Direction direction, bool bytes) {
    std::map<std::string, Ratios> ratios;
    for (const ReportedGroup& group : groups) {
      if (group.direction != direction || group.bytes != bytes) continue;
      const BenchRow* const best = fastest(group);
      if (best == nullptr) continue;
      int right = 0;
      for (const BenchRow& row : group.rows) {
        if (!row.counts()) continue;
        ++right;
        add_ratios(ratios[row.algorithm], group, row);
      }
      if (right > 1) add_ratios(ratios["(our fastest)"], group, *best);
      for (const BenchRow& row : group.rows) {
        if (!row.auto_choice || !row.counts() || right < 2) continue;
        ++choices;
        if (row.time.median_ms <= 1.1 * best->time.median_ms) ++good_choices;
      }
    }
    const std::string what = cat(name_of(direction), bytes ? " of bytes" : "");
    for (const Cells& cells : ratio_lines(what, ratios, columns)) lines.push_back(cells);
  };
  for (const Direction direction : kDirections) {
    for (const bool bytes : {false, true}) add_lines(direction, bytes);
  }
  std::string out;
  if (lines.size() > 1) {
    const auto with_baseline = std::ranges::find_if(
        groups, [](const ReportedGroup& group) { return !group.baseline_rows.empty(); });
    out = fmt::format(
        "ratio to {}, its median time / ours, geometric mean and least: its fastest variant in its "
        "own\nlayouts, its fastest variant with row-major tensors, and each of its algorithms:\n{}",
        with_baseline == groups.end() ? "the baseline" : with_baseline->baseline, aligned(lines));
  }
  if (choices > 0) {
    out += fmt::format("auto (*) chose within 10% of the fastest in {} of {} cases\n", good_choices,
                       choices);
  }
  return out;
}

std::string peaks_text(const CpuPeaks& peaks) {
  const auto line = [&](const char* name, const Peak& one, const char* unit) {
    if (one.one_thread <= 0) return std::string();
    return fmt::format("  {:<10} {:>8.1f} {:>8.1f}  {}\n", name, one.one_thread * 1e-9,
                       one.all_threads * 1e-9, unit);
  };
  return fmt::format("  {:<10} {:>8} {:>8}\n", "", "1 thread",
                     fmt::format("{} threads", peaks.cores)) +
         line("FMA f32", peaks.flops, "GFLOP/s") + line("u8 x i8", peaks.int8, "GOP/s") +
         line("L2 read", peaks.l2_read, "GB/s") + line("L2 copy", peaks.l2_copy, "GB/s") +
         line("L3 read", peaks.l3_read, "GB/s") + line("L3 copy", peaks.l3_copy, "GB/s") +
         line("DRAM read", peaks.dram_read, "GB/s") + line("DRAM copy", peaks.dram_copy, "GB/s");
}

bool any_wrong(const ReportedGroups& groups) {
  const auto wrong = [](const auto& row) { return !row.wrong.empty(); };
  const auto bad = [](const BenchRow& row) { return !row.counts(); };
  return std::ranges::any_of(groups, [&](const ReportedGroup& group) {
    return std::ranges::any_of(group.rows, bad) || std::ranges::any_of(group.baseline_rows, wrong);
  });
}

}  // namespace convscope
