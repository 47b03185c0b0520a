// SPDX-License-Identifier: Apache-2.0
// machine_load.h: how busy other programs keep this machine: times that are measured beside them
// are not to be trusted.
//
// The load average remembers the last minute, the program's own work included. So what is counted
// is the time on the cores since the program started, less its own (/proc/stat, times()).
#pragma once

#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Remembers where the counts stand. Called once, when the program starts; later calls do nothing.
CONVSCOPE_API void begin_load_watch();

// How many cores other programs have kept busy since then, a mean; nothing where the system does
// not say, or where other processes of this one's group work on this host: they are no others.
// Waits until a tenth of a second is over: the counts are hundredths of a second.
CONVSCOPE_API std::optional<double> cores_of_others();
CONVSCOPE_API int cores_online();

// The same from its construction on: of one case of a benchmark, of one run of a sweep.
class CONVSCOPE_API LoadSpan {
 public:
  LoadSpan();
  std::optional<double> others() const;  // nothing before a tenth of a second is over

 private:
  double all_ = 0, own_ = 0, at_ = -1;  // seconds; at_ below 0: the system does not say
};

// Whether `others` cores are taken so that `threads` threads have not one of `cores` each; where
// `cores` is 0, nobody knows how many there are, and half a core of others is enough.
CONVSCOPE_API bool is_disturbed(std::optional<double> others, int threads, int cores);

// As files hold it: to two decimals.
CONVSCOPE_API std::optional<double> rounded_load(std::optional<double> others);

// A warning when is_disturbed(); "" when all is quiet.
CONVSCOPE_API std::string load_warning(std::optional<double> others, int threads, int cores);

}  // namespace convscope
