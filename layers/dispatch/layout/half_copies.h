// SPDX-License-Identifier: Apache-2.0
// half_copies.h: images between f32 [N,C,H,W] and halves or f32 with their channels last,
// [N,1,H,W,Cp], on a GPU: the ends of a network of half precision, or of one of tf32.
#pragma once

#include "framework/dtype.h"
#include "framework/kernel_slot.h"
#include "framework/shape.h"

namespace convscope {

// What stands in `to` is replaced, or added to: the sum is rounded once. Lanes behind the last
// channel get 0.
struct HalfCopy {
  Shape images;              // [N,C,H,W]
  DType half = DType::bf16;  // or f32: what the numbers with their channels last are
  bool to_halves = false;    // else `from` has its channels last
  bool accumulate = false;
  const void* from = nullptr;
  void* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const HalfCopy&)> half_copy_kernel;

}  // namespace convscope
