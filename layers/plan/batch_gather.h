// SPDX-License-Identifier: Apache-2.0
// batch_gather.h: the arguments with which a recorded step gathers its images from a data set of
// bytes in device memory. The first operation that reads the images can gather them itself, so that
// gathering needs no separate launch.
#pragma once

#include <cstdint>

#include "framework/ops/loss_scale_state.h"

namespace convscope {

// All pointers are to device memory. The inputs are constant while steps run. The outputs are `x`,
// `labels` and the members noted_*; they are written after the previous step has ended.
struct BatchGather {
  const std::uint8_t* images = nullptr;        // [M][channels][plane]; null: x is in place
  const std::int32_t* image_labels = nullptr;  // [M]
  const std::int32_t* order = nullptr;         // [M]: sample n is order[*position + offset + n]
  const std::int64_t* position = nullptr;
  std::int64_t offset = 0;
  const float* levels = nullptr;   // [channels][256]: the value of each byte
  float* x = nullptr;              // [N][channels][plane], gathered images for later readers
  std::int32_t* labels = nullptr;  // [N]

  // Results of the previous step, recorded by this step. A null noted_loss means that this step is
  // the first.
  const float* loss = nullptr;
  const std::int32_t* correct = nullptr;
  float* noted_loss = nullptr;
  std::int32_t* noted_correct = nullptr;
  std::int32_t* halted = nullptr;         // set to 1 when the loss is not finite; null: not needed
  DeviceLossScale* loss_scale = nullptr;  // updated for this step; null: none
  LossScaleState* noted_scale = nullptr;
};

}  // namespace convscope
