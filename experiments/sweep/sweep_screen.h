// SPDX-License-Identifier: Apache-2.0
// sweep_screen.h: messages of a sweep on stderr: lines, and on a terminal a redrawn last line about
// the members at work.
#pragma once

#include <chrono>
#include <string>

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API SweepScreen {
 public:
  explicit SweepScreen(bool quiet);
  ~SweepScreen();
  SweepScreen(const SweepScreen&) = delete;
  SweepScreen& operator=(const SweepScreen&) = delete;

  void line(const std::string& text);
  bool due();  // whether it is time to redraw the last line
  void live(const std::string& text);

 private:
  void clear();
  bool quiet_, live_, drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace convscope
