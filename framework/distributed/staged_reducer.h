// SPDX-License-Identifier: Apache-2.0
// staged_reducer.h: sums over processes of what lies on a GPU, through the memory of the host: it
// is copied there, summed by MPI, and copied back. For machines without NCCL, for sums in the order
// of a tree, and for the emulated GPU.
//
// Plan      sum() queues the copy to the host and a mark behind it. The thread of the group waits
//           for the mark and then sums, while this thread queues more of the backward pass.
//           join() waits for the sums and queues the copies back.
// Cost      Twice over the bus of the GPU, and the host must wait in each step, so such steps are
//           not recorded.
#pragma once

#include <string>
#include <vector>

#include "framework/distributed/reducer.h"

namespace convscope {

class CONVSCOPE_API StagedReducer : public Reducer {
 public:
  // why: no better one than this; text() says it.
  StagedReducer(ProcessGroup& group, Device device, SumOrder order, std::string why);
  ~StagedReducer() override;
  StagedReducer(const StagedReducer&) = delete;
  StagedReducer& operator=(const StagedReducer&) = delete;

  void sum(const Tensor& data, float weight) override;
  void join() override;
  std::string text() const override;

 private:
  // One for each sum between two joins; the same ones serve the next step.
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
