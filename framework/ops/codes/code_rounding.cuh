// SPDX-License-Identifier: Apache-2.0
// code_rounding.cuh: f32 to codes in a kernel.
//
// Numerics   The codes are those of the CPU, bit by bit. v / step is computed in f32 as a product
//            with 1 / step, with a relative error below 3 units of 2^-24. If this error could
//            change the rounding, because the fraction is close to 1/2, v / step is recomputed in
//            double with a division.
// Read next  codes_cuda.cu
#pragma once

#include <cstdint>

#include "framework/cuda/launch.cuh"

namespace convscope {

// Computes codes one number at a time.
class CodeRounding {
 public:
  __device__ CodeRounding(double step, std::int32_t low, std::int32_t high)
      : step_(step),
        inverse_(static_cast<float>(1 / step)),
        low_(static_cast<float>(low)),
        high_(static_cast<float>(high)) {
    const std::int32_t top = (high > -low ? high : -low) + 1;
    sure_ = static_cast<float>(0.5 - 6 * 0x1p-24 * top);
  }
  __device__ std::uint8_t operator()(float v) const {
    constexpr float kShift = 12582912.0f;  // 1.5 * 2^23: removes the fraction
    // Clips before the conversion, so that integers cannot overflow; a NaN becomes the lowest code.
    const float real = clipped(v * inverse_, low_, high_);
    const float code = (real + kShift) - kShift;
    const float rest = real > code ? real - code : code - real;
    return rest > sure_ ? exactly(v) : byte_of(code);
  }

 private:
  template <class T>
  static __device__ T clipped(T real, T low, T high) {
    real = real > low ? real : low;
    return real > high ? high : real;
  }
  template <class T>
  static __device__ std::uint8_t byte_of(T code) {
    return static_cast<std::uint8_t>(static_cast<int>(code));
  }
  __device__ std::uint8_t exactly(float v) const {
    constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52
    const double real = clipped(static_cast<double>(v) / step_, static_cast<double>(low_),
                                static_cast<double>(high_));
    return byte_of((real + kShift) - kShift);
  }

  double step_;
  float inverse_, low_, high_, sure_;
};

}  // namespace convscope
