// SPDX-License-Identifier: Apache-2.0
// signals.cpp: SIGINT and SIGTERM ask a run to stop after the step it is in; a second one ends the
// process at once (a second SIGTERM only after a moment: it may be the echo of the first).
#include "experiments/trainer/signals.h"

#include <ctime>

namespace convscope {
namespace {

constexpr std::time_t kEchoSeconds = 2;

volatile std::sig_atomic_t received_signal = 0;
volatile std::time_t received_at = 0;  // monotonic seconds

extern "C" void remember_signal(int number) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (received_signal == 0) {
    received_at = now.tv_sec;
    received_signal = number;
    return;
  }
  // A sweep that is killed has SIGTERM sent to its members once for each of its threads
  // (PR_SET_PDEATHSIG): these are echoes of one wish, not the impatience of a second one.
  const bool echo = number == SIGTERM && received_signal == SIGTERM;
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
  sigaction(SIGINT, &action, &before_int_);
  sigaction(SIGTERM, &action, &before_term_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &before_int_, nullptr);
  sigaction(SIGTERM, &before_term_, nullptr);
}

int StopSignals::received() noexcept { return received_signal; }

}  // namespace convscope
