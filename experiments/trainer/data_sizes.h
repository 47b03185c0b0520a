// SPDX-License-Identifier: Apache-2.0
// data_sizes.h: checks that a data set has as many images as a config requires.
#pragma once

#include "experiments/config/experiment_config.h"

namespace convscope {

// Throws Error of kind kConfig when `data.val_split` leaves no training images, or when
// `data.batch_size` is larger than the number of remaining images. Without this check, a smaller
// batch would be timed and reported as a batch of `data.batch_size` images.
CONVSCOPE_API void check_data_sizes(const DataConfig& data, std::int64_t training_images);

struct TrainingSetup;
// Throws (kRun) when a layer cannot train on a full batch, or on the last batch of an epoch, which
// may be smaller.
CONVSCOPE_API void check_batches(const TrainingSetup& setup);

}  // namespace convscope
