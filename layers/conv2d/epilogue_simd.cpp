// SPDX-License-Identifier: Apache-2.0
// epilogue_simd.cpp: plain loops that the compiler vectorises.
// Read next  epilogue.h
#include "layers/conv2d/epilogue_simd.h"

#include "framework/simd/simd.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

using std::int64_t;

// As in the operations relu and bounded_relu, NaN stays NaN.
CONVSCOPE_INLINE float relu(float x, float most) {
  const float above = x <= 0.0f ? 0.0f : x;
  return above > most ? most : above;
}

void apply(float* y, const float* residual, bool with_relu, float most, int64_t rows, int64_t count,
           int64_t step) {
  for (int64_t i = 0; i < rows; ++i, y += step) {
    float* __restrict const to = y;
    const float* __restrict const from = residual;
    if (from == nullptr) {
      for (int64_t j = 0; j < count; ++j) to[j] = relu(to[j], most);
      continue;
    }
    if (with_relu) {
      for (int64_t j = 0; j < count; ++j) to[j] = relu(to[j] + from[j], most);
    } else {
      for (int64_t j = 0; j < count; ++j) to[j] += from[j];
    }
    residual += step;
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(epilogue_kernels, (EpilogueKernels{.apply = CONVSCOPE_ISA::apply}))
