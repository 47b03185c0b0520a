// SPDX-License-Identifier: Apache-2.0
// device_data.h: a whole data set in the memory of a device, as bytes, with the order of the
// samples in the current epoch. A kernel there gathers and normalises batches without the host
// (experiments/trainer/next_batch.h): the samples, their order and every bit are those of the
// Loader. Augmentation stays with the Loader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/loader.h"

namespace convscope {

class CONVSCOPE_API DeviceData {
 public:
  // Null when the data set cannot live there; `why_not` says why.
  static std::unique_ptr<DeviceData> make(const Loader& loader, Device device,
                                          std::string* why_not);
  ~DeviceData();
  DeviceData(const DeviceData&) = delete;
  DeviceData& operator=(const DeviceData&) = delete;

  // Sends the order of an epoch there. Queued behind what the device still has to do.
  void start_epoch(std::int64_t epoch);

  const Tensor& images() const { return images_; }  // u8 [N,C,H,W]
  const Tensor& labels() const { return labels_; }  // i32 [N]
  const Tensor& order() const { return order_; }    // i32 [N]: sample of each place in the epoch
  const Tensor& levels() const { return levels_; }  // f32 [C,256]
  std::int64_t bytes() const;                       // held on the device

 private:
  DeviceData(const Loader& loader, Device device);

  const Loader& loader_;
  Device device_;
  Tensor images_, labels_, order_, levels_;
  std::vector<std::int32_t> next_order_;
  std::int32_t* pinned_ = nullptr;  // the order on its way
  void* sent_ = nullptr;            // mark behind it
  bool sending_ = false;
  bool ordered_ = false;  // the order never changes and is there
};

}  // namespace convscope
