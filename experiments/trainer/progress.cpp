// SPDX-License-Identifier: Apache-2.0
// progress.cpp: messages of a run on stderr: a bar on a terminal, a line per epoch everywhere.
#include "experiments/trainer/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "experiments/report/table/fit_text.h"
#include "framework/io/clean_text.h"

namespace convscope {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);

}  // namespace

std::string duration_text(double seconds) {
  const auto total = static_cast<std::int64_t>(std::lround(std::max(0.0, seconds)));
  if (total >= 3600) {
    return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  }
  return fmt::format("{:02}:{:02}", total / 60, total % 60);
}

std::string bar_text(const ProgressPoint& point, double seconds_left, int width) {
  const double done = point.batches == 0
                          ? 1.0
                          : static_cast<double>(point.batch) / static_cast<double>(point.batches);
  const std::string before = fmt::format("epoch {}/{} ", point.epoch + 1, point.epochs);
  const std::string after =
      fmt::format(" {:3.0f}%  loss {:.4f}  {:.0f} img/s  left {}", 100 * done, point.loss,
                  point.images_per_s, duration_text(seconds_left));
  const auto room = static_cast<int>(
      static_cast<std::size_t>(std::max(0, width - 3)) -
      std::min(before.size() + after.size(), static_cast<std::size_t>(std::max(0, width - 3))));
  std::string bar;
  if (room >= 8) {
    const int cells = std::min(room, 40);
    const auto full = static_cast<int>(done * cells);
    bar = fmt::format("[{:=<{}}{:<{}}]", "", full, "", cells - full);
  }
  std::string text = before + bar + after;
  if (static_cast<int>(text.size()) > width - 1) {
    text.resize(static_cast<std::size_t>(std::max(0, width - 1)));
  }
  return text;
}

Progress::Mode Progress::mode_for(bool quiet) {
  if (quiet) return Mode::quiet;
  return isatty(STDERR_FILENO) == 1 ? Mode::bar : Mode::lines;
}

Progress::~Progress() { clear(); }

void Progress::start(std::int64_t steps_done, std::int64_t steps_in_all) {
  first_step_ = step_ = steps_done;
  steps_ = steps_in_all;
  start_ = next_ = std::chrono::steady_clock::now();
}

void Progress::step(const ProgressPoint& point) {
  ++step_;
  if (mode_ != Mode::bar) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + kRedrawInterval;
  const double pace = std::chrono::duration<double>(now - start_).count() /
                      static_cast<double>(std::max<std::int64_t>(1, step_ - first_step_));
  const std::size_t width = screen_width(STDERR_FILENO);
  const std::string text =
      bar_text(point, pace * static_cast<double>(std::max<std::int64_t>(0, steps_ - step_)),
               static_cast<int>(width == 0 ? kUsualWidth : width));
  std::fprintf(stderr, "\r%s\033[K", text.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::line(std::string_view text) {
  if (mode_ == Mode::quiet) return;
  clear();
  std::fprintf(stderr, "%s\n", fit_text(clean_text(text), screen_width(STDERR_FILENO)).c_str());
}

void Progress::clear() {
  if (!drawn_) return;
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace convscope
