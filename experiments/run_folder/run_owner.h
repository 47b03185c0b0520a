// SPDX-License-Identifier: Apache-2.0
// run_owner.h: ownership of a run folder by one process, also for hosts that share a file system
// without common locks.
//
// A process that begins or takes over a run claims the next number: it creates the file
// .owner-<number> with O_EXCL, so that only one process succeeds. Before it writes a checkpoint and
// at each heartbeat, the process checks that its number is the highest. A process that was
// considered dead and wakes up finds a higher number and stops writing.
#pragma once

#include <cstdint>
#include <string>

#include "framework/export.h"

namespace convscope {

// Returns the highest claimed number, or 0 if no number was claimed (a folder of an earlier
// version).
CONVSCOPE_API std::int64_t newest_owner(const std::string& folder);

// Claims `number` and removes files of lower numbers. Returns false when another process has
// claimed this number. The file appears together with its content `text`, even if the process is
// killed.
CONVSCOPE_API bool claim_ownership(const std::string& folder, std::int64_t number,
                                   const std::string& text = "");

// Returns the seconds since `file` was written; negative if it is missing. With `exactly`, the
// present time is that of the file system, because clocks of hosts differ; the function then writes
// and removes a file. Without `exactly`, the present time is that of this host.
CONVSCOPE_API double seconds_since_written(const std::string& folder, const std::string& file,
                                           bool exactly);

}  // namespace convscope
