// SPDX-License-Identifier: Apache-2.0
// rank_device.cpp: one GPU for each process of a group.
#include "framework/distributed/rank_device.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

#include "framework/device_side_queue.h"

namespace convscope {
namespace {

constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

[[noreturn]] void refuse(const ProcessGroup& group, const std::string& got) {
  fail(ErrorKind::kUnavailable, "ranks",
       cat("expected a GPU for each of the ", group.local_size(), " processes on host ",
           group.host_of(group.rank()), ", because each process trains on one of its own, got ",
           got, " for ", group.name_of(group.rank()),
           "; start fewer processes on this host, or use device=cpu"));
}

bool is_one(const std::string& list) {
  return !list.empty() && list.find(',') == std::string::npos;
}

// Whether whoever started the processes has given each one a GPU already: each of this host sees
// one, and they are not the same. Slurm may call all of them 0.
bool has_own_gpu(const ProcessGroup& group, const std::vector<std::string>& lists) {
  std::set<std::string> names;
  int processes = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.host_of(rank) != group.host_of(group.rank())) continue;
    const std::string& list = lists[static_cast<std::size_t>(rank)];
    if (!is_one(list)) return false;
    names.insert(list);
    ++processes;
  }
  return names.size() == static_cast<std::size_t>(processes) || group.launcher() == "Slurm";
}

}  // namespace

std::string gpu_of_rank(int local_rank, const char* visible) {
  if (visible == nullptr) return std::to_string(local_rank);
  std::string list = visible;
  for (int skipped = 0; skipped < local_rank; ++skipped) {
    const std::size_t comma = list.find(',');
    if (comma == std::string::npos) return "";
    list.erase(0, comma + 1);
  }
  list.resize(std::min(list.find(','), list.size()));
  return list;
}

void take_device_of_rank(ProcessGroup& group, Device device) {
  if (device.type != DeviceType::cuda) return;
  if (device.index != 0) {
    fail(ErrorKind::kInvalid, "ranks",
         cat("expected device cuda, because each process takes the GPU of its place on the host, "
             "got ",
             device.str()));
  }
  const char* const visible = std::getenv(kVariable);
  const std::string list = visible == nullptr ? "" : visible;
  const bool is_given = has_own_gpu(group, group.gather(list));
  const std::string own = is_given ? list : gpu_of_rank(group.local_rank(), visible);
  if (!own.empty()) setenv(kVariable, own.c_str(), 1);
  const DeviceStatus& status = status_of(DeviceType::cuda);  // CUDA reads the variable here
  if (status.available && side_queues_kernel.get(device)().is_emulated) return;
  if (own.empty()) refuse(group, cat("none, as ", kVariable, " is '", list, "',"));
  if (!status.available) {
    // The first one of a host can say best what is missing.
    if (group.local_rank() == 0) (void)backend_of(device);
    refuse(group, cat("none (", status.reason, ")"));
  }
  const int count = backend_of(device).device_count();
  if (count != 1) {
    fail(ErrorKind::kRun, "ranks",
         cat("expected to see GPU ", own, " alone, because CUDA starts after ", kVariable,
             " is set, got ", count, " GPUs"));
  }
}

}  // namespace convscope
