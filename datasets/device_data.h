// SPDX-License-Identifier: Apache-2.0
// device_data.h: a whole data set as bytes in device memory, with the order of the samples in the
// current epoch. A kernel gathers and normalises batches in device memory without the host
// (experiments/trainer/next_batch.h). The samples, their order and every bit are those of the
// Loader. Only the Loader does augmentation.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/loader.h"

namespace convscope {

class CONVSCOPE_API DeviceData {
 public:
  // Returns null when the data set cannot be on the device; `why_not` gives the reason.
  static std::unique_ptr<DeviceData> make(const Loader& loader, Device device,
                                          std::string* why_not);
  ~DeviceData();
  DeviceData(const DeviceData&) = delete;
  DeviceData& operator=(const DeviceData&) = delete;

  // Uploads the order of the samples in an epoch. The upload is queued after the device's pending
  // work.
  void start_epoch(std::int64_t epoch);

  const Tensor& images() const { return images_; }  // u8 [N,C,H,W]
  const Tensor& labels() const { return labels_; }  // i32 [N]
  const Tensor& order() const { return order_; }    // i32 [N]: sample index at each position
  const Tensor& levels() const { return levels_; }  // f32 [C,256]
  std::int64_t bytes() const;                       // held on the device

 private:
  DeviceData(const Loader& loader, Device device);

  const Loader& loader_;
  Device device_;
  Tensor images_, labels_, order_, levels_;
  std::vector<std::int32_t> next_order_;
  std::int32_t* pinned_ = nullptr;  // the order during its upload
  void* sent_ = nullptr;            // mark after the upload
  bool sending_ = false;
  bool ordered_ = false;  // the order never changes and is uploaded
};

}  // namespace convscope
