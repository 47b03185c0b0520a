// SPDX-License-Identifier: Apache-2.0
// progress.h: messages of a run on stderr: a bar on a terminal, a line per epoch everywhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

struct ProgressPoint {
  std::int64_t epoch = 0, epochs = 0;  // epoch from 0
  std::int64_t batch = 0, batches = 0;
  double loss = 0;
  double images_per_s = 0;
};

// Returns "01:05" or "1:02:03".
CONVSCOPE_API std::string duration_text(double seconds);
// Returns the text of the bar without control characters, at most `width` columns.
CONVSCOPE_API std::string bar_text(const ProgressPoint& point, double seconds_left, int width);

class CONVSCOPE_API Progress {
 public:
  enum class Mode { quiet, lines, bar };
  static Mode mode_for(bool quiet);  // a bar when stderr is a terminal

  explicit Progress(Mode mode) : mode_(mode) {}
  ~Progress();
  void start(std::int64_t steps_done, std::int64_t steps_in_all);
  // Redraws the bar at most ten times per second. All other calls only read the clock.
  void step(const ProgressPoint& point);
  void line(std::string_view text);  // a separate line; clears the bar first
  void clear();

 private:
  Mode mode_;
  bool drawn_ = false;
  std::int64_t first_step_ = 0, step_ = 0, steps_ = 0;
  std::chrono::steady_clock::time_point start_{}, next_{};
};

}  // namespace convscope
