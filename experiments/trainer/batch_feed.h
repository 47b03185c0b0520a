// SPDX-License-Identifier: Apache-2.0
// batch_feed.h: sends the loader's batches to the training device.
//
// Two sets of buffers are used alternately; each set has pinned host memory and device memory. A
// batch is copied to pinned memory, and its transfer is queued after earlier work, so the host can
// prepare the next batch meanwhile. A set is reused as soon as its last transfer has finished. The
// step that reads its tensors may not have run yet, but it is queued before the next transfer into
// the set, so it reads the right data. On the CPU batches are passed unchanged.
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

  // Returns the batch on the device. Its tensors are valid until send() has been called two more
  // times.
  Batch send(const Batch& batch);

 private:
  struct Lane {  // buffers of one tensor
    void* pinned = nullptr;
    std::size_t pinned_bytes = 0;
    Tensor there;
  };
  struct Set {
    Lane x, labels;
    void* arrived = nullptr;  // mark after the copies
    bool sent = false;
  };
  Tensor send(Lane& lane, const Tensor& from);

  Device device_;
  std::array<Set, 2> sets_;
  std::size_t next_ = 0;
};

}  // namespace convscope
