// SPDX-License-Identifier: Apache-2.0
// mpi_reducer.h: sums of host tensors over processes.
#pragma once

#include <string>

#include "framework/distributed/reducer.h"

namespace convscope {

class CONVSCOPE_API MpiReducer final : public Reducer {
 public:
  MpiReducer(ProcessGroup& group, SumOrder order) : group_(group), order_(order) {}
  void sum(const Tensor& data, float weight) override {
    last_ = group_.queue_sum(data.data<float>(), data.numel(), weight, order_);
  }
  void join() override { group_.wait(last_); }
  std::string text() const override { return cat("MPI (", group_.library(), ")"); }

 private:
  ProcessGroup& group_;
  SumOrder order_;
  ProcessGroup::Ticket last_ = 0;
};

}  // namespace convscope
