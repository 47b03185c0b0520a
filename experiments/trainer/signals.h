// SPDX-License-Identifier: Apache-2.0
// signals.h: SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal is gone), SIGPIPE (nobody reads the
// output any more), SIGUSR1 and SIGUSR2 (of launchers; taken as SIGTERM and SIGINT) ask a run to
// stop after the step it is in, with a checkpoint. A second SIGINT, or another SIGTERM or SIGHUP
// after a moment, ends the process at once.
#pragma once

#include <csignal>

#include "framework/export.h"

namespace convscope {

// While one lives, these signals are remembered instead of ending the process. SIGHUP stays ignored
// where it is (nohup).
class CONVSCOPE_API StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // puts the earlier handlers back; after a stop, launchers are no longer heard
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The first one that came; 0: none.
  static int received() noexcept;

 private:
  static constexpr int kCount = 6;
  struct sigaction before_[kCount] {};
};

}  // namespace convscope
