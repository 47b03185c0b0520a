// SPDX-License-Identifier: Apache-2.0
// process_memory.h: memory use of this process as the system reports it (Linux).
#pragma once

#include <cstdint>

#include "framework/export.h"

namespace convscope {

// Returns the peak resident set since the last reset, or since the process began where the system
// has no reset; 0 where the system reports nothing.
CONVSCOPE_API std::int64_t process_peak_bytes();
CONVSCOPE_API void reset_process_peak();

}  // namespace convscope
