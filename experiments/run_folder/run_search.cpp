// SPDX-License-Identifier: Apache-2.0
// run_search.cpp: finds run folders.
#include "experiments/run_folder/run_search.h"

#include <algorithm>
#include <filesystem>

#include "experiments/run_folder/run_folder.h"
#include "framework/io/file_names.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;

constexpr int kDepth = 3;  // runs/ -> <sweep>/ -> <row>/ -> <run>/; one less without a sweep

bool is_run(const fs::path& path) {
  std::error_code error;
  return fs::exists(path / "config.yaml", error) || fs::exists(path / "status.json", error);
}

void collect(const fs::path& path, int depth, std::vector<std::string>& out) {
  if (is_run(path)) {
    out.push_back(path.string());
    return;
  }
  std::error_code error;
  if (depth == 0) return;
  std::vector<fs::path> inside;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    // Skips links (`latest`), because their folders are found anyway.
    if (is_hidden(it->path())) continue;
    if (it->is_directory(ignored) && !it->is_symlink(ignored)) inside.push_back(it->path());
  }
  std::sort(inside.begin(), inside.end());
  for (const fs::path& folder : inside) collect(folder, depth - 1, out);
}

}  // namespace

std::vector<std::string> find_runs(const std::string& path) {
  std::vector<std::string> out;
  fs::path start(path);
  if (start.filename().empty() && start.has_parent_path()) start = start.parent_path();
  collect(start, kDepth, out);
  return out;
}

std::optional<std::string> newest_unfinished_run(
    const std::string& folder, const std::function<bool(const std::string&)>& fits) {
  std::vector<std::string> runs = find_runs(folder);
  std::sort(runs.begin(), runs.end(), [](const std::string& a, const std::string& b) {
    std::error_code error;
    const auto of = [&](const std::string& run) {
      return fs::last_write_time(run + "/config.yaml", error);
    };
    const auto time_a = of(a), time_b = of(b);
    return time_a != time_b ? time_a > time_b : a > b;
  });
  std::optional<std::string> other;
  for (const std::string& run : runs) {
    const RunStatus status = read_run_status(run);
    const bool goes_on =
        status.state == "INTERRUPTED" || status.state == "KILLED" ||
        (fits && status.state == "RUNNING") ||
        // The cause of a failure, such as a full disk, may be gone, so the run can be resumed. A
        // run that diverged or missed a value of `expect` (kRun) would fail again.
        (status.state == "FAILED" && status.exit_code != exit_code(ErrorKind::kRun));
    if (!goes_on) continue;
    if (!fits || fits(run)) return run;
    if (!other && status.state != "RUNNING") other = run;
  }
  return other;
}

}  // namespace convscope
