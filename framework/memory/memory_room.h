// SPDX-License-Identifier: Apache-2.0
// memory_room.h: how much memory a process of this machine can ever have: what is built in, or less
// where a control group (of a container, a batch system) sets a limit. CONVSCOPE_MEMORY_MIB says
// another number, for machines whose memory grows while it is used; 0: do not ask.
#pragma once

#include <cstdint>
#include <string>

#include "framework/device.h"
#include "framework/export.h"

namespace convscope {

struct MemoryRoom {
  std::int64_t bytes = 0;  // 0: not known
  std::string whose;       // "this machine has", "/sys/fs/cgroup/job/memory.max allows"
};

// Where the system says what control group this process is in, and what the groups may take. Both
// versions of the interface are read: memory.max, and memory/<group>/memory.limit_in_bytes. A limit
// of a group holds for those inside it.
struct ControlGroups {
  std::string own = "/proc/self/cgroup";
  std::string folder = "/sys/fs/cgroup";
};
CONVSCOPE_API MemoryRoom host_memory_room(const ControlGroups& groups = {});

// What is free on a device now, together with what this process holds there already; of the CPU,
// host_memory_room().
CONVSCOPE_API MemoryRoom memory_room(Device device, const ControlGroups& groups = {});

}  // namespace convscope
