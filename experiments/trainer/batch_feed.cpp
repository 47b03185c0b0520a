// SPDX-License-Identifier: Apache-2.0
// batch_feed.cpp: sends the loader's batches to the training device.
#include "experiments/trainer/batch_feed.h"

#include <cstring>

namespace convscope {

BatchFeed::BatchFeed(Device device) : device_(device) {
  if (device.type == DeviceType::cpu) return;
  for (Set& set : sets_) set.arrived = backend_of(device).make_mark(device.index);
}

BatchFeed::~BatchFeed() {
  if (device_.type == DeviceType::cpu) return;
  const DeviceBackend& backend = backend_of(device_);
  for (Set& set : sets_) {
    if (set.sent) {
      try {  // pinned memory must not be freed while it is read
        backend.wait_for_mark(device_.index, set.arrived);
      } catch (const Error&) {  // the device has failed and no longer reads
      }
    }
    backend.free_mark(device_.index, set.arrived);
    for (Lane* lane : {&set.x, &set.labels}) {
      if (lane->pinned != nullptr) backend.free_pinned(lane->pinned);
    }
  }
}

Tensor BatchFeed::send(Lane& lane, const Tensor& from) {
  const DeviceBackend& backend = backend_of(device_);
  const auto bytes = static_cast<std::size_t>(from.size_bytes());
  if (bytes > lane.pinned_bytes) {
    if (lane.pinned != nullptr) backend.free_pinned(lane.pinned);
    lane.pinned = nullptr;
    lane.pinned_bytes = 0;
    lane.pinned = backend.allocate_pinned(bytes);
    lane.pinned_bytes = bytes;
  }
  // The last batch of an epoch is smaller and uses only the first rows of the buffer.
  const bool fits = lane.there.defined() && lane.there.dtype() == from.dtype() &&
                    lane.there.numel() >= from.numel() && from.rank() == lane.there.rank() &&
                    lane.there.shape().stride(0) == from.shape().stride(0);
  if (!fits) lane.there = Tensor::empty(from.shape(), from.dtype(), device_);
  const Tensor to = lane.there.slice_rows(0, from.dim(0));
  if (bytes == 0) return to;
  std::memcpy(lane.pinned, from.raw_data(), bytes);
  backend.copy_from_host(device_.index, to.raw_data(), lane.pinned, bytes);
  return to;
}

Batch BatchFeed::send(const Batch& batch) {
  if (device_.type == DeviceType::cpu) return batch;
  const DeviceBackend& backend = backend_of(device_);
  Set& set = sets_[next_];
  next_ = (next_ + 1) % sets_.size();
  if (set.sent) backend.wait_for_mark(device_.index, set.arrived);
  set.sent = false;
  Batch out;
  out.x = send(set.x, batch.x);
  out.labels = send(set.labels, batch.labels);
  out.index = batch.index;
  backend.set_mark(device_.index, set.arrived);
  set.sent = true;
  return out;
}

}  // namespace convscope
