// SPDX-License-Identifier: Apache-2.0
// index_rows.cpp: reads all runs and sweeps below a folder fast.
#include "experiments/report/index/index_rows.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "experiments/report/csv_table.h"
#include "experiments/report/html/markup.h"
#include "experiments/report/html/run_environment.h"
#include "experiments/run_folder/run_search.h"

namespace convscope {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSweepState = "sweep.state.json";

// Returns whether the page need not list a key among the settings: either the key has a separate
// column, or it does not affect training.
bool is_shown_elsewhere(const std::string& key) {
  for (const char* prefix : {"expect.", "log.", "checkpoint.", "meta."}) {
    if (key.starts_with(prefix)) return true;
  }
  for (const char* name : {"name", "schema", "seed", "note", "tags"}) {
    if (key == name) return true;
  }
  return false;
}

// Reads the test accuracies from epochs.csv, faster than the checked CSV reader. A cell that is not
// a number becomes a gap.
std::vector<double> test_accuracies(const std::string& run) {
  std::vector<double> out;
  std::istringstream lines(file_text(run + "/epochs.csv"));
  std::string line, cell;
  int wanted = -1;
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    for (int at = 0; std::getline(cells, cell, ','); ++at) {
      if (out.empty() && wanted < 0 && cell == "test_acc") {
        wanted = at;
        break;
      }
      if (at != wanted) continue;
      const double value = number_in(cell);
      if (std::isfinite(value)) out.push_back(value);
      break;
    }
    if (wanted < 0) break;  // no such column
  }
  return out;
}

// Removes settings that are equal in all runs. Runs with an unreadable config are not compared.
void drop_shared_settings(std::vector<IndexedRun>& runs) {
  std::map<std::string, std::set<std::string>> values;
  std::map<std::string, std::size_t> counts;
  std::size_t readable = 0;
  for (const IndexedRun& run : runs) {
    if (run.settings.empty()) continue;
    ++readable;
    for (const auto& [key, value] : run.settings) {
      values[key].insert(value);
      ++counts[key];
    }
  }
  for (IndexedRun& run : runs) {
    std::erase_if(run.settings, [&](const auto& entry) {
      return values[entry.first].size() == 1 && counts[entry.first] == readable;
    });
  }
}

IndexedSweep read_sweep(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error).lexically_normal();
  IndexedSweep sweep{
      .path = path.string(), .name = whole.filename().string(), .state = "UNREADABLE"};
  const json state = json::parse(file_text((path / kSweepState).string()), nullptr,
                                 /*allow_exceptions=*/false);
  const bool ours =
      state.is_object() && (!state.contains("format") || state["format"] == "convscope sweep 1");
  if (ours) {
    if (state.contains("state") && state["state"].is_string()) {
      sweep.state = state["state"].get<std::string>();
    }
    if (state.contains("members") && state["members"].is_array()) {
      for (const json& member : state["members"]) {
        if (member.is_object() && member.contains("state") && member["state"].is_string()) {
          ++sweep.members[member["state"].get<std::string>()];
        }
      }
    }
  }
  for (const char* name : {"report.html", "sweep.md"}) {
    if (sweep.page.empty() && fs::exists(path / name, error)) sweep.page = name;
  }
  return sweep;
}

// Finds the sweeps below a folder. Any folder between a run and the root may be a sweep, and a
// sweep need not have a run yet.
class Sweeps {
 public:
  explicit Sweeps(const fs::path& root) : root_(root) {
    look_at(root);
    std::error_code error;
    for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
      std::error_code ignored;
      if (it->is_directory(ignored) && !it->is_symlink(ignored)) look_at(it->path());
    }
  }
  std::string name_for(const fs::path& run) {
    for (fs::path at = run.parent_path(); !at.empty(); at = at.parent_path()) {
      if (const IndexedSweep* sweep = look_at(at)) return sweep->name;
      if (at == root_ || at == at.parent_path()) break;
    }
    return "";
  }
  std::vector<IndexedSweep> all() const {
    std::vector<IndexedSweep> out;
    for (const auto& [path, sweep] : known_) {
      if (sweep) out.push_back(*sweep);
    }
    return out;
  }

 private:
  const IndexedSweep* look_at(const fs::path& path) {
    const auto [entry, is_new] = known_.try_emplace(path.string());
    std::error_code error;
    if (is_new && fs::exists(path / kSweepState, error)) entry->second = read_sweep(path);
    return entry->second ? &*entry->second : nullptr;
  }
  fs::path root_;
  std::map<std::string, std::optional<IndexedSweep>> known_;
};

}  // namespace

std::map<std::string, std::string> plain_settings(const std::string& yaml) {
  std::map<std::string, std::string> out;
  std::vector<std::pair<std::size_t, std::string>> blocks;  // indent and path of outer blocks
  std::size_t list = std::string::npos;                     // indentation of the skipped list
  std::istringstream lines(yaml);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos || line[indent] == '#') continue;
    if (list != std::string::npos && (indent > list || line[indent] == '-')) continue;
    list = line[indent] == '-' ? indent : std::string::npos;
    const std::size_t colon = line.find(':', indent);
    if (list != std::string::npos || colon == std::string::npos) continue;
    while (!blocks.empty() && blocks.back().first >= indent) blocks.pop_back();
    const std::string outer = blocks.empty() ? "" : blocks.back().second + ".";
    const std::string path = outer + line.substr(indent, colon - indent);
    if (colon + 1 == line.size()) {
      blocks.emplace_back(indent, path);
    } else {
      const std::size_t value = line.find_first_not_of(' ', colon + 1);
      out[path] = value == std::string::npos ? "" : line.substr(value);
    }
  }
  return out;
}

RunIndex read_run_index(const std::string& folder) {
  RunIndex index;
  Sweeps sweeps{fs::path(folder)};
  for (const std::string& path : find_runs(folder)) {
    IndexedRun run;
    run.row = read_run_row(path);
    const RunEnvironment environment = read_run_environment(path);
    run.started = environment.started;
    run.project = environment.project;
    run.sweep = sweeps.name_for(path);
    std::error_code error;
    run.has_page = fs::exists(path + "/report.html", error);
    run.test_acc = test_accuracies(path);
    run.settings = plain_settings(file_text(path + "/config.yaml"));
    std::erase_if(run.settings, [](const auto& e) { return is_shown_elsewhere(e.first); });
    index.runs.push_back(std::move(run));
  }
  drop_shared_settings(index.runs);
  // The folders are sorted by name, which begins with the time.
  std::stable_sort(index.runs.begin(), index.runs.end(), [](const auto& a, const auto& b) {
    return fs::path(a.row.path).filename() > fs::path(b.row.path).filename();
  });
  index.sweeps = sweeps.all();
  return index;
}

}  // namespace convscope
