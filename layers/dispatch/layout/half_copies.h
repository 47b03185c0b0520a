// SPDX-License-Identifier: Apache-2.0
// half_copies.h: copies images between f32 NCHW and fp16, bf16 or f32 NHWC, [N,1,H,W,Cp], on a GPU:
// the input and output of a network in half precision, or in tf32.
#pragma once

#include "framework/dtype.h"
#include "framework/kernel_slot.h"
#include "framework/shape.h"

namespace convscope {

// `to` is overwritten, or the copied values are added to it; each sum is then rounded once. Lanes
// after the last channel become 0.
struct HalfCopy {
  Shape images;              // [N,C,H,W]
  DType half = DType::bf16;  // type of the NHWC image; may be f32
  bool to_nhwc = false;      // else `from` is NHWC
  bool accumulate = false;
  const void* from = nullptr;
  void* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const HalfCopy&)> half_copy_kernel;

}  // namespace convscope
