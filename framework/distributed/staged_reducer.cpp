// SPDX-License-Identifier: Apache-2.0
// staged_reducer.cpp: sums GPU tensors over processes through host memory.
#include "framework/distributed/staged_reducer.h"

#include <utility>

namespace convscope {

StagedReducer::StagedReducer(ProcessGroup& group, Device device, SumOrder order, std::string why)
    : group_(group),
      device_(device),
      backend_(backend_of(device)),
      order_(order),
      why_(std::move(why)) {}

StagedReducer::~StagedReducer() {
  while (used_ > 0) group_.wait(stages_[--used_].ticket);
  if (!stages_.empty()) backend_.synchronize(device_.index);  // copies back may be pending
  for (const Stage& stage : stages_) {
    backend_.free_mark(device_.index, stage.copied);
    backend_.free_pinned(stage.host);
  }
}

void StagedReducer::sum(const Tensor& data, float weight) {
  CONVSCOPE_CHECK(data.dtype() == DType::f32 && data.device() == device_, "ranks",
                  "expected f32 numbers on ", device_, ", got ", data.str());
  if (data.numel() == 0) return;
  if (used_ == stages_.size()) {
    stages_.emplace_back();
    stages_.back().copied = backend_.make_mark(device_.index);
  }
  Stage& stage = stages_[used_];
  const auto bytes = static_cast<std::size_t>(data.size_bytes());
  if (stage.bytes < bytes) {
    backend_.synchronize(device_.index);  // the last copy to the device may still read stage.host
    if (stage.host != nullptr) backend_.free_pinned(stage.host);
    stage.bytes = 0;
    stage.host = static_cast<float*>(backend_.allocate_pinned(bytes));
    stage.bytes = bytes;
  }
  stage.data = data;
  // The device executes its queue in order. So this copy overwrites stage.host only after the
  // previous copy from stage.host to the device has ended.
  backend_.queue_copy_to_host(device_.index, stage.host, data.raw_data(), bytes);
  backend_.set_mark(device_.index, stage.copied);
  group_.queue([this, mark = stage.copied] { backend_.wait_for_mark(device_.index, mark); });
  stage.ticket = group_.queue_sum(stage.host, data.numel(), weight, order_);
  ++used_;
}

void StagedReducer::join() {
  for (std::size_t i = 0; i < used_; ++i) {
    Stage& stage = stages_[i];
    group_.wait(stage.ticket);
    backend_.copy_from_host(device_.index, stage.data.raw_data(), stage.host,
                            static_cast<std::size_t>(stage.data.size_bytes()));
    stage.data = Tensor();
  }
  used_ = 0;
}

std::string StagedReducer::text() const {
  return cat("MPI (", group_.library(), ") through the memory of the host, because ", why_);
}

}  // namespace convscope
