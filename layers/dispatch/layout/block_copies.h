// SPDX-License-Identifier: Apache-2.0
// block_copies.h: copies f32 images between NCHW and NCHW16c, on any device.
#pragma once

#include "framework/kernel_slot.h"
#include "framework/shape.h"

namespace convscope {

// `to` is overwritten, or the copied values are added to it. Lanes after the last channel become 0.
struct BlockCopy {
  Shape images;             // [N,C,H,W]
  bool to_nchw16c = false;  // else `from` is NCHW16c
  bool accumulate = false;
  const float* from = nullptr;
  float* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const BlockCopy&)> block_copy_kernel;

}  // namespace convscope
