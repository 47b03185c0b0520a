// SPDX-License-Identifier: Apache-2.0
// process_memory.h: what the system says about the memory of this process (Linux).
#pragma once

#include <cstdint>

#include "framework/export.h"

namespace convscope {

// The resident set at its highest since the last reset; since the process began where the system
// offers no reset; 0 where it says nothing.
CONVSCOPE_API std::int64_t process_peak_bytes();
CONVSCOPE_API void reset_process_peak();

}  // namespace convscope
