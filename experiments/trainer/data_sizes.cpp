// SPDX-License-Identifier: Apache-2.0
// data_sizes.cpp: checks that a data set has as many images as a config requires.
#include "experiments/trainer/data_sizes.h"

#include <algorithm>

#include "experiments/trainer/trainer.h"
#include "layers/training_rule.h"

namespace convscope {
namespace {

// Throws when a layer cannot train on `images` images. `images` is one process's share, or one
// part, of a batch of `whole` images.
void check_batch(const TrainingSetup& setup, std::int64_t images, std::int64_t whole) {
  if (images < 1) return;
  Shape input = {images};
  for (const std::int64_t size : setup.train->dataset().sample_shape()) input.push_back(size);
  const std::int64_t size = setup.train->options().batch_size;
  const std::int64_t all = setup.train->dataset().size();
  require_trainable(
      *setup.model, input,
      cat(whole == size ? cat("a batch has ", images, images == 1 ? " image" : " images")
                        : cat("the last batch of an epoch has ", images, " of ", all, " images"),
          setup.share.parts() > 1 ? " in this part" : "", "; try another data.batch_size than ",
          size));
}

}  // namespace

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

void check_batches(const TrainingSetup& setup) {
  const std::int64_t all = setup.train->dataset().size();
  const std::int64_t size = setup.train->options().batch_size;
  const Share& share = setup.share;
  for (const std::int64_t whole : {std::min(size, all), all % size}) {
    for (int part = 0; part < share.parts(); ++part) {  // all processes refuse the same configs
      check_batch(
          setup,
          first_of_part(whole, part + 1, share.parts()) - first_of_part(whole, part, share.parts()),
          whole);
    }
  }
}

}  // namespace convscope
