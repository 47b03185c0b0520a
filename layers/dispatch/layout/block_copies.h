// SPDX-License-Identifier: Apache-2.0
// block_copies.h: f32 images between [N,C,H,W] and blocks [N,C/16,H,W,16], on any device.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/shape.h"

namespace convscope {

// What stands in `to` is replaced, or added to. Lanes behind the last channel get 0.
struct BlockCopy {
  Shape images;            // [N,C,H,W]
  bool to_blocks = false;  // else `from` lies in blocks
  bool accumulate = false;
  const float* from = nullptr;
  float* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const BlockCopy&)> block_copy_kernel;

}  // namespace convscope
