// SPDX-License-Identifier: Apache-2.0
#include "experiments/trainer/signals.h"

namespace convscope {
namespace {

volatile std::sig_atomic_t received_signal = 0;

extern "C" void remember_signal(int number) {
  received_signal = number;
  // The next one, of either kind, does what it does by default: it ends the process.
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
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
