// SPDX-License-Identifier: Apache-2.0
// batch_feed.h: brings the loader's batches to the device that trains.
//
// There are two sets of memory, each pinned on the host and on the device, taken in turns: a batch
// is copied into pinned memory and its way to the device is queued behind the work that is there,
// so the host prepares the next batch while this one travels. A set is used again when its copy has
// arrived; the step that read its tensors is ahead in the queue by then. On the CPU batches pass as
// they are.
#pragma once

#include <array>

#include "datasets/loader.h"

namespace convscope {

class CONVSCOPE_API BatchFeed {
 public:
  explicit BatchFeed(Device device);
  ~BatchFeed();
  BatchFeed(const BatchFeed&) = delete;
  BatchFeed& operator=(const BatchFeed&) = delete;

  // The same batch on the device; its tensors are good until the next call but one.
  Batch send(const Batch& batch);

 private:
  struct Lane {  // a tensor's way
    void* pinned = nullptr;
    std::size_t pinned_bytes = 0;
    Tensor there;
  };
  struct Set {
    Lane x, labels;
    void* arrived = nullptr;  // mark behind the copies
    bool sent = false;
  };
  Tensor send(Lane& lane, const Tensor& from);

  Device device_;
  std::array<Set, 2> sets_;
  std::size_t next_ = 0;
};

}  // namespace convscope
