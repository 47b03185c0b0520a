// SPDX-License-Identifier: Apache-2.0
// codes.h: arrays of codes: bytes that represent real numbers as multiples of a step size
// (layers/dispatch/elements.h). Rounds f32 to codes, converts codes to f32, and computes max
// pooling of codes.
//
// Codes of images are in NCHW16c, [N,C/16,H,W,16]. Lanes after the last channel are 0. On a device,
// every pointer below is a device pointer, also the pointer to the step size. A kernel reads the
// step size when it runs, so a recording (a CUDA graph) remains valid when the step size changes.
#pragma once

#include <cstdint>

#include "framework/kernel_slot.h"
#include "framework/ops/codes/codes_simd.h"

namespace convscope {

inline constexpr int kCodeBlock = 16;  // channels per block

// Converts f32 images to codes clip(round(v / step), low, high), rounded half to even in double; a
// NaN gets the lowest code. low <= 0 <= high.
struct RoundedImages {
  std::int64_t images = 0, channels = 0, pixels = 0;
  bool in_nchw16c = false;  // the f32 are NCHW16c, too; else [N,C,pixels]
  const float* from = nullptr;
  const double* step = nullptr;
  std::int32_t low = 0, high = 255;
  std::uint8_t* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const RoundedImages&)> round_images_kernel;

// Converts codes to real numbers: step size * code in double, rounded once.
struct RealImages {
  std::int64_t images = 0, channels = 0, pixels = 0;
  bool in_nchw16c = false;  // `to` is NCHW16c; else [N,C,pixels]
  bool is_signed = false;
  const std::uint8_t* from = nullptr;
  const double* step = nullptr;
  float* to = nullptr;
};
extern CONVSCOPE_API KernelSlot<void(const RealImages&)> real_images_kernel;

// Computes the largest code of each pooling window.
extern CONVSCOPE_API KernelSlot<void(const CodesPool&)> pool_codes_kernel;

}  // namespace convscope
