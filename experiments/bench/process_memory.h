// SPDX-License-Identifier: Apache-2.0
// process_memory.h: memory use of this process as the system reports it (Linux).
#pragma once

#include <cstdint>

#include "framework/export.h"

namespace convscope {

// Returns the peak resident set in bytes since the last reset. If the system has no reset, it is
// the peak since the process began. Returns 0 if the system reports no peak.
CONVSCOPE_API std::int64_t process_peak_bytes();
CONVSCOPE_API void reset_process_peak();

}  // namespace convscope
