// SPDX-License-Identifier: Apache-2.0
// screen.h: frames on a terminal, and waiting for the next one. Whatever ends the watch, the
// terminal is as it was before, with the last frame on it.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct TerminalSize {
  int columns = 80, rows = 24;
};
// Of the terminal on stdout; 80 x 24 when there is none.
CONVSCOPE_API TerminalSize terminal_size();

// Waits so long, or until a signal comes: Ctrl-C, or another size of the terminal.
CONVSCOPE_API void wait_for_next_frame(double seconds);

class CONVSCOPE_API Screen {
 public:
  Screen();   // a screen of its own, without a cursor
  ~Screen();  // the earlier screen; the last frame is printed on it
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  void show(const std::vector<std::string>& lines);

 private:
  std::vector<std::string> last_;
  struct sigaction before_ {};
};

}  // namespace convscope
