// SPDX-License-Identifier: Apache-2.0
// machine_load.h: the load of this machine by other programs, which makes measured times too long.
//
// The load average covers the last minute and includes the program's own work. Therefore the load
// is the core time of all programs since this program started, minus the core time of this program
// (/proc/stat, times()).
#pragma once

#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Stores the present counts. Called once at the start of the program; later calls do nothing.
CONVSCOPE_API void begin_load_watch();

// Returns the mean number of cores that other programs have kept busy since begin_load_watch().
// Returns nothing if /proc/stat or times() fails, or if this process trains in a group that has
// other processes on this host. Waits until 0.1 s have passed, because the counts are in 0.01 s.
CONVSCOPE_API std::optional<double> cores_of_others();
CONVSCOPE_API int cores_online();

// Measures the load from its construction on, for a case of a benchmark or a run of a sweep.
class CONVSCOPE_API LoadSpan {
 public:
  LoadSpan();
  std::optional<double> others() const;  // nothing before 0.1 s have passed

 private:
  double all_ = 0, own_ = 0, at_ = -1;  // seconds; unknown if at_ is below 0
};

// Returns whether other programs occupy so many (`others`) of `cores` cores that `threads` threads
// cannot have one core each. If `cores` is 0 (unknown), half a core of others is enough.
CONVSCOPE_API bool is_disturbed(std::optional<double> others, int threads, int cores);

// Returns the load as in files, rounded to two decimals.
CONVSCOPE_API std::optional<double> rounded_load(std::optional<double> others);

// Returns a warning when is_disturbed(), else "".
CONVSCOPE_API std::string load_warning(std::optional<double> others, int threads, int cores);

}  // namespace convscope
