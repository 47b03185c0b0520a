// SPDX-License-Identifier: Apache-2.0
// nccl_reducer.h: sums over the GPUs of a group with NCCL; each process has one GPU.
//
// Method    sum() queues each sum in a side queue of the device (device_side_queue.h).
//           The sum waits for the present work of the main queue, and overlaps later work of the
//           main queue. join() makes the main queue wait for the sums. The device executes all of
//           this, so it is recorded like kernels, and a replayed step needs no host.
// Weights   NCCL multiplies the terms by the weight (ncclRedOpCreatePreMulSum), so no kernel scales
//           the terms first.
// Processes If a process is lost, the other processes wait in NCCL's kernels forever. NCCL needs no
//           watchdog here: the background thread of the process group detects the loss and ends
//           the process.
// Order     Free recordings that contain sums before the reducer: NCCL waits for them.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "framework/distributed/device_side_queue.h"
#include "framework/distributed/nccl_library.h"
#include "framework/distributed/reducer.h"

namespace convscope {

class CONVSCOPE_API NcclReducer : public Reducer {
 public:
  // Makes a reducer. If any process cannot use NCCL, returns null on all processes, and why_not
  // names the first such process and its reason. All processes call it.
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
