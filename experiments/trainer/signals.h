// SPDX-License-Identifier: Apache-2.0
// signals.h: SIGINT and SIGTERM ask a run to stop after the step it is in; a second one ends the
// process at once (a second SIGTERM only after a moment: it may be the echo of the first).
#pragma once

#include <csignal>

#include "framework/export.h"

namespace convscope {

// While one lives, the two signals are remembered instead of ending the process.
class CONVSCOPE_API StopSignals {
 public:
  StopSignals();
  ~StopSignals();  // puts the earlier handlers back
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // SIGINT, SIGTERM, or 0 when none has come.
  static int received() noexcept;

 private:
  struct sigaction before_int_ {};
  struct sigaction before_term_ {};
};

}  // namespace convscope
