// SPDX-License-Identifier: Apache-2.0
// codes_simd.h: functions for arrays of codes that run on a single CPU thread.
#pragma once

#include <cstdint>

#include "framework/simd/cpu_isa.h"

namespace convscope {

// Computes to[p pixel + c] = clip(round(from[c plane + p] / step), low, high) + offset, rounded
// half to even in double, for channels c < channels <= 16 and p < pixels. If lanes > channels, the
// bytes of the other lanes become 0.
struct RoundedRow {
  int channels = 1, lanes = 1;
  std::int64_t pixels = 0, plane = 0;
  const float* from = nullptr;
  double step = 1;
  std::int32_t low = 0, high = 255, offset = 0;
  std::int64_t pixel = 1;
  std::uint8_t* to = nullptr;
};

// NCHW16c images, [planes, H, W, 16] -> [planes, P, Q, 16]: the largest code of each window;
// padding is ignored.
struct CodesPool {
  std::int64_t planes = 0, h = 0, w = 0, p = 0, q = 0;
  std::int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  bool is_signed = false;
  const std::uint8_t* from = nullptr;
  std::uint8_t* to = nullptr;
};

struct CodeKernels {
  void (*round)(const RoundedRow& row) = nullptr;
  // Computes to = from + 128 modulo 256, which maps signed codes to 0..255.
  void (*flip)(const std::uint8_t* from, std::int64_t count, std::uint8_t* to) = nullptr;
  // Computes to = step * from, rounded once.
  void (*real_numbers)(const std::uint8_t* from, bool is_signed, double step, std::int64_t count,
                       float* to) = nullptr;
  void (*pool_row)(const CodesPool& pool, std::int64_t plane, std::int64_t row) = nullptr;
};

extern IsaTable<CodeKernels> code_kernels;

}  // namespace convscope
