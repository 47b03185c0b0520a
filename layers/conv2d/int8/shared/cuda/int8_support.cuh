// SPDX-License-Identifier: Apache-2.0
// int8_support.cuh: the operands that the CUDA algorithms of this folder take.
// Read next  int8_gemm_cuda.cu
#pragma once

#include "framework/cuda/launch.cuh"
#include "layers/conv2d/algorithm.h"

namespace convscope::int8 {

inline Conv2dSupport supports_codes(const Conv2dProblem& z) {
  const auto is_byte = [](DType type) { return type == DType::u8 || type == DType::i8; };
  if (!z.types || !is_byte(z.types->x) || z.types->w != DType::i8 ||
      z.types->accumulator != DType::i32 || !(is_byte(z.types->y) || z.types->y == DType::f32)) {
    return Conv2dSupport::no(
        cat("expects x of u8 or i8, w of i8, sums of i32 and y of u8, i8 or f32, got ",
            z.types ? z.types->text() : std::string(name_of(z.dtype))));
  }
  if (z.layout != ActivationLayout::nchw16c) {
    return Conv2dSupport::no(cat("expects codes in layout nchw16c, got ", name_of(z.layout)));
  }
  if (cuda_device_facts().major < 8) {
    return Conv2dSupport::no(cat("expects a GPU of compute capability 8.0 or higher, got ",
                                 cuda_device_facts().major, ".", cuda_device_facts().minor));
  }
  constexpr std::int64_t kMaxTerms = 65793;  // 255 * 128 * terms < 2^31
  const std::int64_t terms = z.c_per_group() * z.r * z.s;
  if (terms > kMaxTerms) {
    return Conv2dSupport::no(cat("expects at most ", kMaxTerms,
                                 " terms of a sum, because it has 32 bits, got ", terms));
  }
  return {};
}

}  // namespace convscope::int8
