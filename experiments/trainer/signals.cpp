// SPDX-License-Identifier: Apache-2.0
// signals.cpp: SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1 and SIGUSR2 ask a run to stop after its
// step.
#include "experiments/trainer/signals.h"

#include <ctime>

namespace convscope {
namespace {

constexpr std::time_t kEchoSeconds = 2;

// Launchers of several processes hand these two on, and end the processes at SIGTERM and SIGINT:
// `convscope launch` sends SIGUSR1 for SIGTERM and SIGUSR2 for SIGINT.
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2};

volatile std::sig_atomic_t received_signal = 0;
volatile std::time_t received_at = 0;  // monotonic seconds

extern "C" void remember_signal(int raised) {
  const int number = raised == SIGUSR1 ? SIGTERM : raised == SIGUSR2 ? SIGINT : raised;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (received_signal == 0) {
    received_at = now.tv_sec;
    received_signal = number;
    return;
  }
  // What is printed on the way out breaks the same pipe again. `convscope launch` repeats its wish,
  // because a launcher forgets one that comes before its processes begin.
  if (number == SIGPIPE || raised == SIGUSR1 || raised == SIGUSR2) return;
  // A sweep that is killed has SIGTERM sent to its members once for each of its threads
  // (PR_SET_PDEATHSIG), and a terminal that closes sends SIGHUP twice: these are echoes of one
  // wish, not the impatience of a second one.
  const bool echo = number != SIGINT && number == received_signal;
  if (echo && now.tv_sec - received_at < kEchoSeconds) return;
  std::signal(number, SIG_DFL);  // what it does by default: it ends the process
  std::raise(number);
}

}  // namespace

StopSignals::StopSignals() {
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < kCount; ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (kSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) continue;
    sigaction(kSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (int i = 0; i < kCount; ++i) {
    sigaction(kSignals[i], &before_[i], nullptr);
    // A wish that was heard, and is repeated, must not end what is left to do.
    const bool is_of_launchers = kSignals[i] == SIGUSR1 || kSignals[i] == SIGUSR2;
    if (is_of_launchers && received_signal != 0) std::signal(kSignals[i], SIG_IGN);
  }
}

int StopSignals::received() noexcept { return received_signal; }

}  // namespace convscope
