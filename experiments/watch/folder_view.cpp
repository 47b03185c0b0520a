// SPDX-License-Identifier: Apache-2.0
// folder_view.cpp: all runs of a folder, one per line.
#include "experiments/watch/folder_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "experiments/report/html/markup.h"
#include "experiments/run_folder/run_search.h"
#include "experiments/sweep/sweep_refresh.h"
#include "experiments/trainer/progress.h"

namespace convscope {
namespace {

constexpr int kStateColumns = 12;  // "INTERRUPTED" and a space
constexpr int kNumberColumns = 32;

std::string short_path(const std::string& path, const std::string& root) {
  const std::string inside = std::filesystem::path(path).lexically_relative(root).string();
  return inside.empty() || inside == "." ? path : inside;
}

std::string row_text(const RunView& run, const std::string& root, int columns) {
  std::string numbers = fmt::format("{:>3}", run.epoch);
  numbers += run.epochs > 0 ? fmt::format("/{:<3}", run.epochs) : "    ";
  numbers += std::isfinite(run.loss) ? fmt::format("{:>8.4f}", run.loss) : "       -";
  numbers += run.test_accuracy.empty() ? "       -"
                                       : fmt::format("{:>8.2f}", run.test_accuracy.back().second);
  numbers += run.is_going() && std::isfinite(run.seconds_left)
                 ? fmt::format("{:>9}", duration_text(run.seconds_left))
                 : "        -";
  const int room = std::max(8, columns - kStateColumns - 1 - columns_of(numbers));
  std::string name = short_path(run.path, root);
  constexpr std::string_view kDate = "2026-01-01_";
  const std::size_t id = name.rfind('/') + 1;  // 0 when there is no '/'
  if (columns_of(name) > room && name.size() > id + kDate.size() && name[id + 10] == '_') {
    name.erase(id, kDate.size());
  }
  if (columns_of(name) > room) {  // the end distinguishes runs
    name = cat("~", name.substr(name.size() - static_cast<std::size_t>(room) + 1));
  }
  name = fit_text(name, room);
  name.append(static_cast<std::size_t>(std::max(0, room - columns_of(name))), ' ');
  return name + " " + numbers;
}

}  // namespace

void FolderReader::look() {
  for (const std::string& path : find_runs(path_)) {
    Watched& run = runs_[path];
    if (!run.reader) run.reader = std::make_unique<RunReader>(path);
  }
  std::error_code error;
  std::erase_if(runs_, [&](const auto& e) { return !std::filesystem::exists(e.first, error); });
  for (auto& [path, run] : runs_) {
    run.view = &run.reader->look();
    run.was_going = run.was_going || run.view->is_going();
  }
}

bool FolderReader::is_going() const {
  if (std::ranges::any_of(runs_, [](const auto& e) { return e.second.view->is_going(); })) {
    return true;
  }
  // Between two members no run is active, but the sweep is.
  if (sweep_is_going(path_)) return true;
  std::error_code error;
  for (std::filesystem::directory_iterator it(path_, error), end; !error && it != end;
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_directory(ignored) && sweep_is_going(it->path().string())) return true;
  }
  return false;
}

bool FolderReader::any_failed() const {
  return std::ranges::any_of(runs_, [](const auto& e) {
    const Watched& run = e.second;
    return run.was_going && !run.view->is_going() && run.view->status.state != "DONE";
  });
}

std::vector<std::string> FolderReader::frame(const FrameLook& look) const {
  std::vector<const RunView*> order;
  std::map<std::string, int> states;
  for (const auto& [path, run] : runs_) {
    order.push_back(run.view);
    ++states[run.view->status.state];
  }
  std::stable_sort(order.begin(), order.end(), [](const RunView* a, const RunView* b) {
    return a->is_going() != b->is_going() ? a->is_going() : a->id > b->id;
  });
  std::string counts;
  for (const auto& [state, count] : states) {
    counts += cat(counts.empty() ? ": " : ", ", count, " ", state);
  }
  std::vector<std::string> out = {
      fit_text(cat(runs_.size(), runs_.size() == 1 ? " run in " : " runs in ", path_, counts),
               look.columns)};
  const int room = std::max(8, look.columns - kStateColumns - 1 - kNumberColumns);
  out.push_back(fit_text(fmt::format("{:<12}{:<{}} {:>7}{:>8}{:>8}{:>9}", "state", "run", room,
                                     "epoch", "loss", "test %", "left"),
                         look.columns));
  for (const RunView* run : order) {
    if (static_cast<int>(out.size()) + 1 >= look.rows && out.size() - 1 < order.size() + 1) {
      const std::size_t more = order.size() - (out.size() - 2);
      if (more > 1) {
        out.push_back(fit_text(cat("... ", more, " more"), look.columns));
        break;
      }
    }
    std::string state = state_text(run->status.state, look.color);
    const int used = columns_of(run->status.state);
    state.append(static_cast<std::size_t>(std::max(1, kStateColumns - used)), ' ');
    out.push_back(state + row_text(*run, path_, look.columns));
  }
  return out;
}

std::vector<std::string> FolderReader::changes() {
  std::vector<std::string> out;
  for (auto& [path, run] : runs_) {
    const RunView& view = *run.view;
    const std::string line =
        cat(view.status.state, " ", view.epoch, " ", view.test_accuracy.size());
    if (line == run.line) continue;
    run.line = line;
    out.push_back(short_path(path, path_) + "  " + run_line(view));
  }
  return out;
}

}  // namespace convscope
