// SPDX-License-Identifier: Apache-2.0
// run_owner.h: which process a run folder belongs to, also where several hosts share a file system
// on which locks are not seen.
//
// A process that begins or takes over a run claims the next number: the file .owner-<number>, made
// with O_EXCL, so that one of several gets it. It must see its own number as the highest before it
// writes a checkpoint and with each heartbeat. A process that was thought dead and wakes up again
// finds a higher one and writes nothing more.
#pragma once

#include <cstdint>
#include <string>

#include "framework/export.h"

namespace convscope {

// The highest number claimed so far; 0: none (a folder of an earlier version).
CONVSCOPE_API std::int64_t newest_owner(const std::string& folder);

// Claims `number`; false: another process has it. Older files are removed. The file holds `text`
// from its first moment on, so that a process that is killed here leaves no file without it.
CONVSCOPE_API bool claim_ownership(const std::string& folder, std::int64_t number,
                                   const std::string& text = "");

// Seconds since `file` was last written; negative: there is no such file. `exactly`: by the clock
// of the file system on which it lies, because the clocks of hosts may differ; this writes a file
// and removes it again. Else by the clock of this host.
CONVSCOPE_API double seconds_since_written(const std::string& folder, const std::string& file,
                                           bool exactly);

}  // namespace convscope
