// SPDX-License-Identifier: Apache-2.0
// stored_integers.h: small integers as operands of NHWC convolutions on a GPU. Sums of a few small
// integers are exact in fp16/bf16, so it does not matter whether a result is rounded once or twice.
#pragma once

#include <cstdint>
#include <vector>

#include "layers/conv2d/algorithm.h"
#include "tests/support/cuda.h"
#include "tests/support/numerics.h"

namespace convscope::testing {

// Returns an NHWC problem of the given type: f32 uses tf32 math; fp16/bf16 uses f32 weights and
// accumulators.
inline Conv2dProblem nhwc_problem(const char* text, DType dtype) {
  Conv2dProblem z = Conv2dProblem::parse(text);
  z.layout = ActivationLayout::nhwc;
  z.dtype = dtype;
  if (dtype == DType::f32) {
    z.math = MathMode::tf32;
  } else {
    z.types = OperandTypes{.x = dtype, .w = DType::f32, .accumulator = DType::f32, .y = dtype};
  }
  return z;
}

// Returns random -1, 0 and 1.
inline Tensor integers(const Shape& shape, DType dtype, int seed) {
  Tensor out = Tensor::empty(shape);
  auto* const to = out.data<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) {
    to[i] = static_cast<float>((i * 7 + i / 5 * 3 + seed) % 3 - 1);
  }
  return out.to(dtype).to(cuda());
}

inline Tensor stored_integers(const Shape& images, DType dtype, int seed) {
  const Tensor plain = integers(images, DType::f32, seed).to(Device{});
  return stored_images(plain, ActivationLayout::nhwc).to(dtype).to(cuda());
}

inline std::vector<float> floats_of(const Tensor& tensor) {
  return values_of<float>(tensor.to(Device{}).to(DType::f32));
}

}  // namespace convscope::testing
