// SPDX-License-Identifier: Apache-2.0
// nccl_reducer.h: sums over the GPUs of a group by NCCL, each process having one GPU.
//
// Plan      The sums go to a side queue of the device (framework/device_side_queue.h): each waits
//           for what the main queue holds when it is asked for, and runs beside what comes there
//           later. join() lets the main queue wait for the sums. All of this is work of the device,
//           so it is recorded like kernels are: a replayed step sums without the host.
// Weights   A sum with pre-multiplied terms (ncclRedOpCreatePreMulSum), so no kernel scales first.
// Processes A process that is lost leaves the others waiting in NCCL's kernels for ever. NCCL needs
//           no watchdog here: the thread of the group notices, and ends the process.
// Order     Recordings that hold sums must be freed before the reducer: NCCL waits for that.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "framework/device_side_queue.h"
#include "framework/distributed/nccl_library.h"
#include "framework/distributed/reducer.h"

namespace convscope {

class CONVSCOPE_API NcclReducer : public Reducer {
 public:
  // Null when any of the processes cannot: then all of them get null, and why_not names the first
  // one with its reason. All processes call it.
  static std::unique_ptr<NcclReducer> make(ProcessGroup& group, Device device,
                                           std::string* why_not);
  ~NcclReducer() override;
  NcclReducer(const NcclReducer&) = delete;
  NcclReducer& operator=(const NcclReducer&) = delete;

  void sum(const Tensor& data, float weight) override;
  void join() override;
  bool is_recordable() const override { return true; }
  std::string text() const override;

 private:
  NcclReducer(const NcclLibrary& nccl, Device device);
  int op_of(float weight);
  void check(int status, const char* what) const;

  const NcclLibrary& nccl_;
  Device device_;
  const SideQueues& queues_;
  NcclLibrary::Comm comm_ = nullptr;
  void* queue_ = nullptr;
  std::map<float, int> ops_;  // by weight
};

}  // namespace convscope
