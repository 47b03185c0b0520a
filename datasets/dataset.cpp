// SPDX-License-Identifier: Apache-2.0
// dataset.cpp: labelled images in memory, and the table of data sets that a config can name.
#include "datasets/dataset.h"

#include <array>
#include <cmath>

namespace convscope {

Registry<DatasetType>& dataset_types() {
  static Registry<DatasetType> table("dataset");
  return table;
}

void check_labels(const Tensor& labels, int classes, const std::string& set,
                  const std::string& file) {
  const std::int32_t* label = labels.data<std::int32_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i) {
    if (label[i] < 0 || label[i] >= classes) {
      fail(ErrorKind::kData, set,
           cat(file, ": expected labels 0 to ", classes - 1, " because the set has ", classes,
               " classes, got ", label[i], " at index ", i));
    }
  }
}

void set_channel_statistics(Dataset& dataset) {
  const Tensor& images = dataset.images;
  const std::int64_t channels = images.dim(1);
  const std::int64_t pixels = images.dim(2) * images.dim(3);
  const std::uint8_t* from = images.data<std::uint8_t>();
  dataset.mean.assign(static_cast<std::size_t>(channels), 0.0);
  dataset.std.assign(static_cast<std::size_t>(channels), 1.0);
  for (std::int64_t c = 0; c < channels; ++c) {
    // Counting each value makes the sums exact, whatever their order.
    std::array<std::int64_t, 256> count{};
    for (std::int64_t n = 0; n < images.dim(0); ++n) {
      const std::uint8_t* pixel = from + (n * channels + c) * pixels;
      for (std::int64_t i = 0; i < pixels; ++i) ++count[pixel[i]];
    }
    double total = 0, sum = 0, squares = 0;
    for (std::size_t value = 0; value < count.size(); ++value) {
      const double v = static_cast<double>(value) / 255.0;
      const auto times = static_cast<double>(count[value]);
      total += times;
      sum += times * v;
      squares += times * v * v;
    }
    if (total == 0) continue;
    const double mean = sum / total;
    const double variance = squares / total - mean * mean;
    const auto at = static_cast<std::size_t>(c);
    dataset.mean[at] = mean;
    // If all pixels of a channel are equal, their standard deviation is 0; std = 1 keeps the
    // quotient finite.
    dataset.std[at] = variance > 1e-12 ? std::sqrt(variance) : 1.0;
  }
}

}  // namespace convscope
