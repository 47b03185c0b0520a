// SPDX-License-Identifier: Apache-2.0
// update_step.cuh: the gate of an update and the arithmetic of update rules, for kernels.
// Read next  optim/update_cuda.cu
#pragma once

#include "framework/cuda/launch.cuh"
#include "framework/ops/update_rule.h"

namespace convscope {

// Reads all flags before it tests any, so that the reads take one memory latency instead of three.
__device__ inline bool is_open(const UpdateGate& gate) {
  const float loss = gate.loss != nullptr ? *gate.loss : 0.0f;
  const std::int32_t halted = gate.halted != nullptr ? *gate.halted : 0;
  const std::int32_t overflow = gate.overflow != nullptr ? *gate.overflow : 0;
  return static_cast<int>(isfinite(loss)) & static_cast<int>(halted == 0) &
         static_cast<int>(overflow == 0);
}

// The arithmetic of update rules. mul_sub() rounds twice, so that all update kernels give the same
// bits.
template <class T>
struct DeviceMath;
template <>
struct DeviceMath<float> {
  using Value = float;
  __device__ static float number(double x) { return static_cast<float>(x); }
  __device__ static float fma(float a, float b, float c) { return ::fmaf(a, b, c); }
  __device__ static float mul_sub(float a, float b, float c) {
    return __fsub_rn(__fmul_rn(a, b), c);
  }
  __device__ static float sqrt(float x) { return ::sqrtf(x); }
  __device__ static float sign(float x) { return static_cast<float>((x > 0) - (x < 0)); }
};
template <>
struct DeviceMath<double> {
  using Value = double;
  __device__ static double number(double x) { return x; }
  __device__ static double fma(double a, double b, double c) { return ::fma(a, b, c); }
  __device__ static double mul_sub(double a, double b, double c) {
    return __dsub_rn(__dmul_rn(a, b), c);
  }
  __device__ static double sqrt(double x) { return ::sqrt(x); }
  __device__ static double sign(double x) { return (x > 0) - (x < 0); }
};

template <class Rule, class T>
using DeviceStep = typename Rule::template Step<DeviceMath<T>>;

}  // namespace convscope
