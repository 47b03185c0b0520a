// SPDX-License-Identifier: Apache-2.0
// screen.cpp: frames on a terminal, and waiting for the next frame.
#include "experiments/watch/screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace convscope {
namespace {

extern "C" void note_new_size(int) {}  // only makes poll() return early

}  // namespace

TerminalSize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return {};
  return {size.ws_col, size.ws_row};
}

void wait_for_next_frame(double seconds) {
  poll(nullptr, 0, static_cast<int>(std::clamp(seconds, 0.0, 3600.0) * 1e3));
}

Screen::Screen() {
  struct sigaction action {};
  action.sa_handler = note_new_size;
  sigemptyset(&action.sa_mask);
  sigaction(SIGWINCH, &action, &before_);
  std::fputs("\033[?1049h\033[?25l", stdout);
  std::fflush(stdout);
}

Screen::~Screen() {
  std::fputs("\033[?25h\033[?1049l", stdout);
  for (const std::string& line : last_) std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  sigaction(SIGWINCH, &before_, nullptr);
}

void Screen::show(const std::vector<std::string>& lines) {
  last_ = lines;
  // Clears the screen before writing: if a line fills the last column, a "clear to the end" after
  // the line would erase its last letter.
  std::string text = "\033[H\033[J";
  for (std::size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\n") + lines[i];
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace convscope
