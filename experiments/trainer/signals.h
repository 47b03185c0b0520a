// SPDX-License-Identifier: Apache-2.0
// signals.h: catches signals that stop a run after the present step, with a checkpoint. These are
// SIGINT (Ctrl-C), SIGTERM, SIGHUP (the terminal is gone), SIGPIPE (the output is closed), and
// SIGUSR1 and SIGUSR2 from launchers, treated as SIGTERM and SIGINT. A second SIGINT, or another
// SIGTERM or SIGHUP after a moment, ends the process at once.
#pragma once

#include <csignal>

#include "framework/export.h"

namespace convscope {

// During the lifetime of this object these signals are remembered and do not end the process. If
// SIGHUP was ignored (nohup), it stays ignored.
class CONVSCOPE_API StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // restores the earlier handlers; after a stop, ignores SIGUSR1 and SIGUSR2
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns the first received signal, or 0.
  static int received() noexcept;

 private:
  static constexpr int kCount = 6;
  struct sigaction before_[kCount] {};
};

}  // namespace convscope
