// SPDX-License-Identifier: Apache-2.0
// device_data.cpp: a whole data set as bytes in device memory, with the order of the samples in the
// current epoch.
#include "datasets/device_data.h"

#include <cstring>
#include <numeric>

#include "datasets/pixel_levels.h"
#include "datasets/sample_order.h"

namespace convscope {

std::unique_ptr<DeviceData> DeviceData::make(const Loader& loader, Device device,
                                             std::string* why_not) {
  const auto refused = [&](const std::string& why) {
    if (why_not != nullptr) *why_not = why;
    return nullptr;
  };
  const LoaderOptions& options = loader.options();
  if (options.mirror || options.crop_padding > 0) {
    return refused("the images are augmented on the host");
  }
  const Dataset& data = loader.dataset();
  if (data.points != nullptr) return refused("its samples are points, which the host packs");
  if (data.label_shape().rank() > 0) return refused("the host gathers the labels of pixels");
  if (data.size() == 0) return refused("the data set is empty");
  // Leaves half of the free memory to the network.
  const std::int64_t needed = data.images.size_bytes() + 2 * data.labels.size_bytes();
  const std::int64_t free = backend_of(device).facts(device.index).free_bytes;
  if (free > 0 && needed > free / 2) {
    return refused(cat("the data set of ", needed >> 20, " MiB does not fit into half of the ",
                       free >> 20, " MiB that are free on ", device.str()));
  }
  return std::unique_ptr<DeviceData>(new DeviceData(loader, device));
}

DeviceData::DeviceData(const Loader& loader, Device device)
    : loader_(loader),
      device_(device),
      images_(loader.dataset().images.to(device)),
      labels_(loader.dataset().labels.to(device)),
      order_(Tensor::empty(labels_.shape(), DType::i32, device)) {
  const std::vector<PixelLevels> levels = pixel_levels(loader.dataset());
  const Tensor table = Tensor::empty({static_cast<std::int64_t>(levels.size()), 256});
  std::memcpy(table.raw_data(), levels.data(), static_cast<std::size_t>(table.size_bytes()));
  levels_ = table.to(device);
  next_order_.resize(static_cast<std::size_t>(order_.numel()));
  const DeviceBackend& backend = backend_of(device);
  pinned_ = static_cast<std::int32_t*>(
      backend.allocate_pinned(static_cast<std::size_t>(order_.size_bytes())));
  sent_ = backend.make_mark(device.index);
}

DeviceData::~DeviceData() {
  const DeviceBackend& backend = backend_of(device_);
  if (sending_) backend.wait_for_mark(device_.index, sent_);
  backend.free_mark(device_.index, sent_);
  backend.free_pinned(pinned_);
}

void DeviceData::start_epoch(std::int64_t epoch) {
  if (ordered_) return;
  const LoaderOptions& options = loader_.options();
  if (options.shuffle) {
    shuffled_order(next_order_, options.seed, epoch);
  } else {
    std::iota(next_order_.begin(), next_order_.end(), 0);
    ordered_ = true;
  }
  const DeviceBackend& backend = backend_of(device_);
  if (sending_) backend.wait_for_mark(device_.index, sent_);
  const auto bytes = static_cast<std::size_t>(order_.size_bytes());
  std::memcpy(pinned_, next_order_.data(), bytes);
  backend.copy_from_host(device_.index, order_.raw_data(), pinned_, bytes);
  backend.set_mark(device_.index, sent_);
  sending_ = true;
}

std::int64_t DeviceData::bytes() const {
  return images_.size_bytes() + labels_.size_bytes() + order_.size_bytes() + levels_.size_bytes();
}

}  // namespace convscope
