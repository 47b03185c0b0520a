// SPDX-License-Identifier: Apache-2.0
// memory_room.h: the maximum memory of a process on this machine. It is the installed memory, or
// less where a control group (of a container or a batch system) sets a limit. CONVSCOPE_MEMORY_MIB
// overrides this maximum, for machines whose memory grows while in use; 0 means unknown.
#pragma once

#include <cstdint>
#include <string>

#include "framework/device.h"
#include "framework/export.h"

namespace convscope {

struct MemoryRoom {
  std::int64_t bytes = 0;  // 0: unknown
  std::string source;      // "this machine has", "/sys/fs/cgroup/job/memory.max allows"
};

// The path of the file that lists the control group of this process, and the folder of all groups'
// limits. Both versions of cgroups are read: memory.max (version 2), and
// memory/<group>/memory.limit_in_bytes (version 1). A group's limit also applies to the groups
// inside it.
struct ControlGroups {
  std::string own = "/proc/self/cgroup";
  std::string folder = "/sys/fs/cgroup";
};
CONVSCOPE_API MemoryRoom host_memory_room(const ControlGroups& groups = {});

// Returns the free memory of a device plus the memory that this process already holds there; for
// the CPU, host_memory_room().
CONVSCOPE_API MemoryRoom memory_room(Device device, const ControlGroups& groups = {});

}  // namespace convscope
