// SPDX-License-Identifier: Apache-2.0
// screen.h: frames on a terminal, and waiting for the next frame. At the end the terminal is
// restored, with the last frame on it.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct TerminalSize {
  int columns = 80, rows = 24;
};
// Returns the size of the terminal on stdout; 80 x 24 without a terminal.
CONVSCOPE_API TerminalSize terminal_size();

// Waits for `seconds`, or until a signal comes: Ctrl-C, or a resize of the terminal.
CONVSCOPE_API void wait_for_next_frame(double seconds);

class CONVSCOPE_API Screen {
 public:
  Screen();   // an alternate screen without a cursor
  ~Screen();  // restores the screen and prints the last frame
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  void show(const std::vector<std::string>& lines);

 private:
  std::vector<std::string> last_;
  struct sigaction before_ {};
};

}  // namespace convscope
