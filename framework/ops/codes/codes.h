// SPDX-License-Identifier: Apache-2.0
// codes.h: arrays of codes, bytes that stand for real numbers (layers/dispatch/elements.h): rounded
// from f32, turned back, and the largest of each window of an image.
//
// Codes of images lie in blocks of 16 channels, [N,C/16,H,W,16]. Lanes behind the last channel are
// 0. On a device every pointer below is one of the device, the step's too: a kernel reads it when
// it runs, so that a recording stays right when the step changes.
#pragma once

#include <cstdint>

#include "framework/kernel_slot.h"
#include "framework/ops/codes/codes_simd.h"

namespace convscope {

inline constexpr int kCodeBlock = 16;  // channels of a block

// Images f32 as codes clip(round(v / step), low, high), rounded half to even in double; a NaN gets
// the lowest code. low <= 0 <= high.
struct RoundedImages {
  std::int64_t images = 0, channels = 0, pixels = 0;
  bool in_blocks = false;  // the numbers lie in blocks, too; else [N,C,pixels]
  const float* from = nullptr;
  const double* step = nullptr;
  std::int32_t low = 0, high = 255;
  std::uint8_t* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const RoundedImages&)> round_images_kernel;

// The way back: step * code in double, rounded once.
struct RealImages {
  std::int64_t images = 0, channels = 0, pixels = 0;
  bool in_blocks = false;  // of `to`; else [N,C,pixels]
  bool is_signed = false;
  const std::uint8_t* from = nullptr;
  const double* step = nullptr;
  float* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const RealImages&)> real_images_kernel;

// The largest code of each window.
extern CONVSCOPE_API KernelSlot<void(const CodesPool&)> pool_codes_kernel;

}  // namespace convscope
