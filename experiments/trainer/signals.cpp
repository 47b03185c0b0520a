// SPDX-License-Identifier: Apache-2.0
// signals.cpp: catches signals that stop a run after the present step: SIGINT, SIGTERM, SIGHUP,
// SIGPIPE, SIGUSR1 and SIGUSR2.
#include "experiments/trainer/signals.h"

#include <ctime>

namespace convscope {
namespace {

constexpr std::time_t kEchoSeconds = 2;

// Launchers forward SIGUSR1 and SIGUSR2, but end the processes at SIGTERM and SIGINT. Therefore
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
  // Some repeated signals are not a second request to stop. Output during the exit causes SIGPIPE
  // again. `convscope launch` repeats SIGUSR1 and SIGUSR2, because a launcher ignores signals until
  // it has started its processes.
  if (number == SIGPIPE || raised == SIGUSR1 || raised == SIGUSR2) return;
  // A killed sweep sends SIGTERM to its members once per thread (PR_SET_PDEATHSIG), and a closing
  // terminal sends SIGHUP twice. Such a repeated signal is not a second request.
  const bool echo = number != SIGINT && number == received_signal;
  if (echo && now.tv_sec - received_at < kEchoSeconds) return;
  std::signal(number, SIG_DFL);  // the default: it ends the process
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
    // A launcher may repeat its signal. It is ignored from now on, so that it does not end the
    // remaining work after a stop.
    const bool is_of_launchers = kSignals[i] == SIGUSR1 || kSignals[i] == SIGUSR2;
    if (is_of_launchers && received_signal != 0) std::signal(kSignals[i], SIG_IGN);
  }
}

int StopSignals::received() noexcept { return received_signal; }

}  // namespace convscope
