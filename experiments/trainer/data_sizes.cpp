// SPDX-License-Identifier: Apache-2.0
// data_sizes.cpp: whether a data set has the images that a config asks for.
#include "experiments/trainer/data_sizes.h"

#include <algorithm>

namespace convscope {

void check_data_sizes(const DataConfig& data, std::int64_t training_images) {
  if (data.val_split > 0 && data.val_split >= training_images) {
    fail(ErrorKind::kConfig, "data.val_split",
         cat("expected fewer than the ", training_images, " training images of ", data.set,
             ", got ", data.val_split));
  }
  std::int64_t left = training_images - data.val_split;
  if (data.limit > 0) left = std::min(left, data.limit);
  if (left > 0 && data.batch_size > left) {
    fail(ErrorKind::kConfig, "data.batch_size",
         cat("expected at most the ", left, " training images that there are, got ",
             data.batch_size));
  }
}

}  // namespace convscope
