// SPDX-License-Identifier: Apache-2.0
// batch_gather.h: the images of a recorded step, where they lie as bytes: for the operation that
// reads them first, when it can gather them itself, so that gathering costs no launch of its own.
#pragma once

#include <cstdint>

#include "framework/ops/loss_scale_state.h"

namespace convscope {

// All pointers are to device memory. What is read here stays as it is while steps run; `x`,
// `labels` and the note are written when the step before has ended.
struct BatchGather {
  const std::uint8_t* images = nullptr;        // [M][channels][plane]; null: x is there
  const std::int32_t* image_labels = nullptr;  // [M]
  const std::int32_t* order = nullptr;         // [M]: sample n is order[*position + offset + n]
  const std::int64_t* position = nullptr;
  std::int64_t offset = 0;
  const float* levels = nullptr;   // [channels][256]: what a byte becomes
  float* x = nullptr;              // [N][channels][plane], as factors, for those who read it later
  std::int32_t* labels = nullptr;  // [N]

  // What the step before has left, noted on the way; noted_loss null: there was none.
  const float* loss = nullptr;
  const std::int32_t* correct = nullptr;
  float* noted_loss = nullptr;
  std::int32_t* noted_correct = nullptr;
  std::int32_t* halted = nullptr;  // becomes 1 when the loss is not finite; null: nobody asks
  DeviceLossScale* loss_scale = nullptr;  // becomes that of this step; null: there is none
  LossScaleState* noted_scale = nullptr;
};

}  // namespace convscope
