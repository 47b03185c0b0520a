// SPDX-License-Identifier: Apache-2.0
// sweep_screen.cpp: messages of a sweep on stderr.
#include "experiments/sweep/sweep_screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "framework/io/clean_text.h"

namespace convscope {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kRedraw = std::chrono::milliseconds(500);

}  // namespace

SweepScreen::SweepScreen(bool quiet) : quiet_(quiet), live_(!quiet && isatty(STDERR_FILENO) == 1) {}

SweepScreen::~SweepScreen() { clear(); }

void SweepScreen::line(const std::string& text) {
  if (quiet_) return;
  clear();
  std::fprintf(stderr, "%s\n", clean_text(text).c_str());
}

bool SweepScreen::due() {
  if (!live_ || Clock::now() < next_) return false;
  next_ = Clock::now() + kRedraw;
  return true;
}

void SweepScreen::live(const std::string& text) {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  const std::size_t width = known ? size.ws_col - 1u : 79u;  // a wrapped line cannot be redrawn
  std::fprintf(stderr, "\r%s\033[K", clean_line(text).substr(0, width).c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void SweepScreen::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

}  // namespace convscope
