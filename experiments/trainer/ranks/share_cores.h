// SPDX-License-Identifier: Apache-2.0
// share_cores.h: how many threads a process takes when others of its group may run on the same
// cores.
#pragma once

#include "framework/distributed/process_group.h"

namespace convscope {

// Sets the number of threads: the cores that this process may run on, divided by the processes of
// this host that may run on the same ones. A launcher that binds each process to its own cores has
// divided them already.
CONVSCOPE_API void share_cores(ProcessGroup& group);

}  // namespace convscope
