// SPDX-License-Identifier: Apache-2.0
// rank_device.cpp: assigns one GPU to each process of a group.
#include "framework/distributed/rank_device.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <vector>

#include "framework/distributed/device_side_queue.h"

namespace convscope {
namespace {

constexpr const char* kName = "ranks";
constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

bool is_one(const std::string& list) {
  return !list.empty() && list.find(',') == std::string::npos;
}

// Returns true when the launcher has already assigned a GPU to each process: each process of this
// host sees one GPU, and the GPUs differ. Their indices may be equal: Slurm may number each of
// them 0.
bool has_own_gpu(const ProcessGroup& group, const std::vector<std::string>& lists) {
  std::set<std::string> names;
  std::size_t processes = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.host_of(rank) != group.host_of(group.rank())) continue;
    const std::string& list = lists[static_cast<std::size_t>(rank)];
    if (!is_one(list)) return false;
    names.insert(list);
    ++processes;
  }
  return names.size() == processes || group.launcher() == "Slurm";
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

void take_device_of_rank(ProcessGroup& group) {
  const char* const visible = std::getenv(kVariable);
  const std::string list = visible == nullptr ? "" : visible;
  if (has_own_gpu(group, group.gather(list))) return;
  setenv(kVariable, gpu_of_rank(group.local_rank(), visible).c_str(), 1);
}

void check_device_of_rank(const ProcessGroup& group, Device device) {
  if (device.type != DeviceType::cuda) return;
  if (device.index != 0) {
    fail(ErrorKind::kConfig, kName,
         cat("expected device cuda, because each process uses the GPU of its local rank, got ",
             device.str()));
  }
  const DeviceStatus& status = status_of(DeviceType::cuda);
  if (!status.available) {
    fail(ErrorKind::kUnavailable, kName,
         cat("expected a GPU for each of the ", group.local_size(), " processes on host ",
             group.host_of(group.rank()), ", because each process needs a separate one, but ",
             group.name_of(group.rank()), " has none: ", status.reason,
             "; start fewer processes on this host, or use device=cpu"));
  }
  if (side_queues_kernel.get(device)().is_emulated) return;
  const int count = backend_of(device).device_count();
  if (count != 1) {
    const char* const visible = std::getenv(kVariable);
    fail(ErrorKind::kRun, kName,
         cat("expected one visible GPU, because ", kVariable, " is '",
             visible == nullptr ? "" : visible, "' and was set before CUDA started, got ", count));
  }
}

}  // namespace convscope
