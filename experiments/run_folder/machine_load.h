// SPDX-License-Identifier: Apache-2.0
// machine_load.h: the load of this machine by other programs, which makes measured times too long.
//
// The load average of the system is not used, because it covers the last minute and includes this
// program's own work. Here the load is the core time of all programs since this program started,
// minus the core time of this program
// (/proc/stat, times()).
#pragma once

#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Stores the core times at the start of the measurement. Called once at the start of the program;
// later calls do nothing.
CONVSCOPE_API void begin_load_watch();

// Returns the mean number of cores that other programs have kept busy since begin_load_watch().
// Returns nothing if /proc/stat or times() fails, or if other processes on this host take part in
// the same training. Waits until 0.1 s have passed, because the system counts core time in units of
// 0.01 s.
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

// Returns whether `others` cores are so busy with other programs that `threads` threads cannot have
// a core each out of `cores` cores. If `cores` is 0 (unknown), returns true from half a busy core
// on.
CONVSCOPE_API bool is_disturbed(std::optional<double> others, int threads, int cores);

// Returns the load as in files, rounded to two decimals.
CONVSCOPE_API std::optional<double> rounded_load(std::optional<double> others);

// Returns a warning when is_disturbed(), else "".
CONVSCOPE_API std::string load_warning(std::optional<double> others, int threads, int cores);

}  // namespace convscope
