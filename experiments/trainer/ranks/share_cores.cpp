// SPDX-License-Identifier: Apache-2.0
// share_cores.cpp: how many threads a process takes when others of its group may run on the same
// cores.
#include "experiments/trainer/ranks/share_cores.h"

#include <sched.h>

#include <algorithm>
#include <string>

#include "framework/parallel.h"

namespace convscope {

void share_cores(ProcessGroup& group) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  std::string where = group.host_of(group.rank()) + " ";
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    where.append(reinterpret_cast<const char*>(&cores), sizeof(cores));
  }
  const std::vector<std::string> all = group.gather(where);
  const auto sharers = static_cast<int>(std::ranges::count(all, where));
  set_num_threads(0);
  set_num_threads(std::max(1, num_threads() / std::max(1, sharers)));
}

}  // namespace convscope
