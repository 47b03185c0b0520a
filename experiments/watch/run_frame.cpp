// SPDX-License-Identifier: Apache-2.0
// run_frame.cpp: a run as a frame of a terminal, and as one line of a log.
#include "experiments/watch/run_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/trainer/progress.h"

namespace convscope {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr int kSideBySide = 100;  // columns for two adjacent curves
constexpr int kMaxCurveRows = 10, kLeastCurveRows = 3;
constexpr int kLogRows = 6;

std::string percent(double value) {
  return std::isfinite(value) ? fmt::format("{:.2f} %", value) : "-";
}

// Returns "3/5", or "3" while the total is unknown.
std::string progress_text(std::int64_t done, std::int64_t all) {
  return all > 0 ? cat(done, "/", all) : std::to_string(done);
}

double last_of(const Points& points) { return points.empty() ? kUnknown : points.back().second; }

std::string best_text(const Points& accuracy) {
  if (accuracy.empty()) return "";
  const auto best = std::ranges::max_element(accuracy, {}, &Points::value_type::second);
  return fmt::format("   best {:.2f} % in epoch {:.0f}", best->second, best->first);
}

std::string bar(double part, int cells) {
  const int full = std::clamp(static_cast<int>(part * cells), 0, cells);
  return fmt::format("[{:=<{}}{:<{}}] {:3.0f} %", "", full, "", cells - full, 100 * part);
}

std::string setup_line(const RunView& run) {
  if (!run.summary) return "no summary.json yet";
  const RunSummary& s = *run.summary;
  return cat(s.model, " on ", s.data, ", batches of ", s.batch_size, "; ", s.device, ", ",
             s.threads, s.threads == 1 ? " thread" : " threads", s.isa.empty() ? "" : ", " + s.isa,
             s.step.empty() ? "" : ", " + s.step + " steps");
}

std::string progress_line(const RunView& run, int columns) {
  std::string out = cat("epoch ", progress_text(run.epoch, run.epochs), "   step ",
                        progress_text(run.step, run.steps));
  const int cells = std::min(40, columns - columns_of(out) - 12);
  if (run.steps > 0 && cells >= 8) {
    out += "   " + bar(static_cast<double>(run.step) / static_cast<double>(run.steps), cells);
  }
  return out;
}

std::string time_line(const RunView& run) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : "   ") + text; };
  if (std::isfinite(run.images_per_s)) add(fmt::format("{:.0f} images/s", run.images_per_s));
  if (std::isfinite(run.seconds)) {
    add(cat(run.is_going() ? "running " : "took ", duration_text(run.seconds)));
  }
  if (run.is_going()) {
    add(std::isfinite(run.seconds_left) ? "left " + duration_text(run.seconds_left) : "left ?");
    if (std::isfinite(run.heartbeat_age)) {
      add(cat("sign of life ", duration_text(run.heartbeat_age), " ago"));
    }
  }
  return out;
}

std::vector<std::string> titled_curve(const std::string& title, const Points& points, int columns,
                                      int rows, CurveInk ink) {
  std::vector<std::string> out = text_curve(points, columns, rows - 1, ink);
  if (!out.empty()) out.insert(out.begin(), fit_text(title, columns));
  return out;
}

std::vector<std::string> beside(const std::vector<std::string>& left,
                                const std::vector<std::string>& right, int columns) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    std::string line = i < left.size() ? left[i] : "";
    if (i < right.size()) {
      line.append(static_cast<std::size_t>(std::max(1, columns - columns_of(line))), ' ');
      line += right[i];
    }
    out.push_back(line);
  }
  return out;
}

// Returns curves in `rows` lines: side by side if space allows, else below each other.
std::vector<std::string> curves(const RunView& run, int rows, const FrameLook& look) {
  const bool has_test = !run.test_accuracy.empty();
  const bool wide = look.columns >= kSideBySide && has_test;
  const int half = wide ? look.columns / 2 - 1 : look.columns;
  const int each = std::min(kMaxCurveRows + 1, has_test && !wide ? rows / 2 : rows);
  if (each < kLeastCurveRows + 1) {
    if (!has_test || rows < kLeastCurveRows + 1) return {};
    return titled_curve("test accuracy over epochs, %", run.test_accuracy, look.columns, rows,
                        look.ink);
  }
  const auto loss = titled_curve("training loss over steps", run.losses, half, each, look.ink);
  const auto test =
      titled_curve("test accuracy over epochs, %", run.test_accuracy, half, each, look.ink);
  if (wide) return beside(loss, test, half + 2);
  std::vector<std::string> out = loss;
  out.insert(out.end(), test.begin(), test.end());
  return out;
}

}  // namespace

std::string state_text(const std::string& state, bool color) {
  if (!color) return state;
  const char* code = state == "DONE"                             ? "32"
                     : state == "RUNNING" || state == "STARTING" ? "36"
                                                                 : "31";
  return cat("\033[1;", code, "m", state, "\033[0m");
}

std::vector<std::string> run_frame(const RunView& run, const FrameLook& look) {
  const int columns = std::max(20, look.columns);
  const std::string& state = run.status.state;
  const std::string name =
      fit_text(cat(run.name, "  ", run.id), columns - static_cast<int>(state.size()) - 2);
  const int gap = std::max(2, columns - columns_of(name) - static_cast<int>(state.size()));
  std::vector<std::string> out = {name + std::string(static_cast<std::size_t>(gap), ' ') +
                                  state_text(state, look.color)};
  const auto add = [&](const std::string& text) { out.push_back(fit_text(text, columns)); };
  if (!run.status.reason.empty() && state != "DONE") add(run.status.reason);
  add(setup_line(run));
  add(progress_line(run, columns));
  add(fmt::format("loss {}   train {}   test {}{}",
                  std::isfinite(run.loss) ? fmt::format("{:.4f}", run.loss) : "-",
                  percent(run.train_acc), percent(last_of(run.test_accuracy)),
                  best_text(run.test_accuracy)));
  if (std::isfinite(run.test_iou)) add("test IoU " + percent(run.test_iou));
  if (const std::string time = time_line(run); !time.empty()) add(time);

  const int free = look.rows - static_cast<int>(out.size());
  const int log = std::min({kLogRows, static_cast<int>(run.log.size()), std::max(0, free / 3)});
  const int drawable = free - (log > 0 ? log + 1 : 0) - 1;
  const std::vector<std::string> drawn =
      curves(run, drawable, FrameLook{columns, look.rows, look.ink});
  if (!drawn.empty()) out.emplace_back();
  out.insert(out.end(), drawn.begin(), drawn.end());
  if (log > 0) out.emplace_back();
  for (auto line = run.log.end() - log; line != run.log.end(); ++line) add(*line);
  if (static_cast<int>(out.size()) > look.rows) out.resize(static_cast<std::size_t>(look.rows));
  return out;
}

std::string run_line(const RunView& run) {
  std::string out = cat(run.status.state, "  epoch ", progress_text(run.epoch, run.epochs),
                        "  step ", progress_text(run.step, run.steps));
  if (std::isfinite(run.loss)) out += fmt::format("  loss {:.4f}", run.loss);
  if (std::isfinite(run.train_acc)) out += "  train " + percent(run.train_acc);
  if (!run.test_accuracy.empty()) out += "  test " + percent(last_of(run.test_accuracy));
  if (std::isfinite(run.test_iou)) out += "  test IoU " + percent(run.test_iou);
  if (std::isfinite(run.images_per_s)) out += fmt::format("  {:.0f} images/s", run.images_per_s);
  if (std::isfinite(run.seconds_left)) out += "  left " + duration_text(run.seconds_left);
  if (!run.is_going() && !run.status.reason.empty()) out += "  " + run.status.reason;
  return fit_text(out, 1000);
}

}  // namespace convscope
