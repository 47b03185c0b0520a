// SPDX-License-Identifier: Apache-2.0
// measure_once.h: the first command that asks `auto` on a machine measures the machine's ceilings,
// says so in one line, and remembers them; later commands find them.
//
// Nothing is measured when CONVSCOPE_MEASURE=off stands in the environment (ceilings.h), when there
// is no cache folder, or while another process measures for the same folder: this one waits for
// what the other finds. Where other programs keep the cores busy, what is found would be too low:
// it is not measured, or not remembered, `auto` takes the built-in numbers, and the next command
// tries again.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "framework/machine/ceilings.h"

namespace convscope {

struct MeasureOnce {
  std::function<CpuCeilings()> measure;
  std::function<std::optional<double>()> cores_of_others;  // since the program started
  std::function<void(const std::string&)> say;             // one line
};
// Whether something was measured and remembered.
CONVSCOPE_API bool measure_once(const MeasureOnce& how);

// For commands, when arguments and config are checked, before they ask `auto`: as above, with the
// real machine.
CONVSCOPE_API void measure_this_machine_once();

}  // namespace convscope
