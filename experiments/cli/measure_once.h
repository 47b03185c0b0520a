// SPDX-License-Identifier: Apache-2.0
// measure_once.h: the first command that uses `auto` on a machine measures the machine's peaks,
// announces this in one line and stores them; later commands read them.
//
// Nothing is measured with CONVSCOPE_MEASURE=off (peaks.h) or without a cache folder. While
// another process measures for the same folder, the command waits for that result. While other
// programs keep the cores busy, measured peaks would be too low: nothing is stored, `auto` uses
// built-in numbers, and the next command tries again.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "framework/machine/peaks.h"

namespace convscope {

struct MeasureOnce {
  std::function<CpuPeaks()> measure;
  std::function<std::optional<double>()> cores_of_others;  // since the program started
  std::function<void(const std::string&)> say;             // one line
};
// Returns whether peaks were measured and stored.
CONVSCOPE_API bool measure_once(const MeasureOnce& how);

// Calls measure_once() with the real machine. Commands call it after checking arguments and config
// and before asking `auto`.
CONVSCOPE_API void measure_this_machine_once();

}  // namespace convscope
