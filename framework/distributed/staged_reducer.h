// SPDX-License-Identifier: Apache-2.0
// staged_reducer.h: sums GPU tensors over processes through host memory. It copies the tensors to
// the host, sums them with MPI, and copies them back. It is for machines without NCCL, for sums in
// tree order, and for the emulated GPU.
//
// Method    sum() queues the copy to the host and a mark after it. The background thread of the
//           process group waits for the mark and then sums, while the calling thread queues more of
//           the backward pass. join() waits for the sums and queues the copies to the device.
// Cost      The data crosses the GPU's bus twice. The host must wait in each step, so such steps
//           are not recorded.
#pragma once

#include <string>
#include <vector>

#include "framework/distributed/reducer.h"

namespace convscope {

class CONVSCOPE_API StagedReducer : public Reducer {
 public:
  // Makes the reducer. `why` is the reason for not using a faster reducer; text() reports it.
  StagedReducer(ProcessGroup& group, Device device, SumOrder order, std::string why);
  ~StagedReducer() override;
  StagedReducer(const StagedReducer&) = delete;
  StagedReducer& operator=(const StagedReducer&) = delete;

  void sum(const Tensor& data, float weight) override;
  void join() override;
  std::string text() const override;

 private:
  // The host memory of one sum. There is one Stage per sum between two joins; the next training
  // step reuses it.
  struct Stage {
    float* host = nullptr;  // pinned
    std::size_t bytes = 0;
    void* copied = nullptr;  // mark
    Tensor data;
    ProcessGroup::Ticket ticket = 0;
  };

  ProcessGroup& group_;
  Device device_;
  const DeviceBackend& backend_;
  SumOrder order_;
  std::string why_;
  std::vector<Stage> stages_;
  std::size_t used_ = 0;  // since the last join
};

}  // namespace convscope
