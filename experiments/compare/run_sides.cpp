// SPDX-License-Identifier: Apache-2.0
// run_sides.cpp: selects the runs of one side of `convscope compare`.
#include "experiments/compare/run_sides.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include "experiments/report/table/row_groups.h"
#include "experiments/run_folder/run_search.h"
#include "experiments/run_folder/user_words.h"
#include "framework/io/file_names.h"
#include "framework/registry.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Names folders_in(const std::string& path) {
  Names out;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && !is_hidden(it->path()))
      out.push_back(it->path().filename().string());
  }
  std::ranges::sort(out);
  return out;
}

// Returns the folder that the argument names.
std::string folder_of(const std::string& given, const std::string& root) {
  if (is_folder(given)) return given;
  if (is_folder(root + "/" + given)) return root + "/" + given;
  const Names names = folders_in(root);
  Names rows;  // of sweeps
  for (const std::string& name : names) {
    const std::string path = cat(root, "/", name, "/", given);
    if (is_folder(path)) rows.push_back(path);
  }
  if (rows.size() == 1) return rows[0];
  if (rows.size() > 1) {
    fail(ErrorKind::kInvalid, "compare",
         cat("expected one folder of runs, got '", given, "', which may be ", join(rows, " or ")));
  }
  fail(ErrorKind::kIo, "compare",
       cat("expected a run folder, a name in ", root, "/, or a benchmark's JSON file, got '", given,
           "', which is none of them", did_you_mean(given, names)));
}

// Returns the folder that may hold several runs.
std::string parent_of(const std::string& run) {
  return fs::absolute(run).lexically_normal().parent_path().string();
}

bool same_config(const RunRow& a, const RunRow& b) {
  const RunSummary &s = a.summary, &t = b.summary;
  if (s.device != t.device || s.isa != t.isa || s.threads != t.threads) return false;
  const auto skip = [](auto it, auto end) {
    while (it != end && is_bookkeeping(it->first)) ++it;
    return it;
  };
  auto left = skip(a.config.begin(), a.config.end());
  auto right = skip(b.config.begin(), b.config.end());
  while (left != a.config.end() && right != b.config.end() && *left == *right) {
    left = skip(std::next(left), a.config.end());
    right = skip(std::next(right), b.config.end());
  }
  return left == a.config.end() && right == b.config.end();
}

}  // namespace

RunSide read_run_side(const std::string& given, const std::string& root) {
  RunSide side{.given = given, .runs = {}, .remarks = {}};
  const std::string folder = folder_of(given, root);
  const Names found = find_runs(folder);
  std::set<std::string> parents;
  for (const std::string& run : found) parents.insert(parent_of(run));
  if (parents.size() > 1) {
    Names rows;
    for (const std::string& parent : parents) {
      rows.push_back(fs::path(parent).filename().string());
      if (rows.size() == 4) break;
    }
    fail(ErrorKind::kInvalid, "compare",
         cat("expected the runs of one name because a side is one config, got ", folder,
             ", which holds ", parents.size(), " names: ", join(rows),
             parents.size() > rows.size() ? ", ..." : "", "; give one of them"));
  }
  for (const std::string& run : found) {
    RunRow row = read_run_row(run);
    const std::string problem = read_config(row);
    if (!row.has_summary || !problem.empty()) {
      side.remarks.push_back(cat(run, " is left out: ", problem.empty() ? row.reason : problem));
      continue;
    }
    side.runs.push_back(std::move(row));
  }
  if (side.runs.empty()) {
    fail(ErrorKind::kIo, "compare",
         cat("expected at least one run with a summary in ", folder, ", got ",
             side.remarks.empty() ? "none" : side.remarks.front()));
  }
  // The folders are sorted by name, which begins with the time, so the last folder is the newest.
  // The newest finished run is preferred to a newer unfinished one.
  const auto is_done = [](const RunRow& row) { return row.state == "DONE"; };
  auto newest = std::find_if(side.runs.rbegin(), side.runs.rend(), is_done);
  if (newest == side.runs.rend()) newest = side.runs.rbegin();
  const RunRow model = *newest;
  const std::size_t before = side.runs.size();
  std::erase_if(side.runs, [&](const RunRow& row) { return !same_config(row, model); });
  if (side.runs.size() < before) {
    side.remarks.push_back(cat(folder, ": ", before - side.runs.size(), " of ", before,
                               " runs are left out, because their config is not that of the newest "
                               "one, ",
                               model.summary.id));
  }
  std::vector<RunRow> kept;
  std::size_t twins = 0;
  for (RunRow& row : side.runs) {
    const auto twin = std::ranges::find_if(
        kept, [&](const RunRow& other) { return other.summary.seed == row.summary.seed; });
    if (twin == kept.end()) {
      kept.push_back(std::move(row));
      continue;
    }
    ++twins;
    if (is_done(row) || !is_done(*twin)) *twin = std::move(row);
  }
  side.runs = std::move(kept);
  if (twins > 0) {
    side.remarks.push_back(cat(
        folder, ": ", twins,
        twins == 1 ? " earlier run with the same seed is" : " earlier runs with the same seeds are",
        " left out"));
  }
  return side;
}

}  // namespace convscope
