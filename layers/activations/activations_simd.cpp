// SPDX-License-Identifier: Apache-2.0
// activations_simd.cpp: plain f32 loops that the compiler vectorises, once per instruction set.
#include <convscope/activations.h>

#include "framework/simd/simd.h"
#include "framework/simd/simd_math.h"
#include "layers/activations/activations.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

struct FloatMath {
  using Value = float;
  static CONVSCOPE_INLINE float number(double x) { return static_cast<float>(x); }
  static CONVSCOPE_INLINE float sigmoid(float x) { return sigmoid_of(x); }
  static CONVSCOPE_INLINE float choose(bool condition, float a, float b) {
    return choose_if(condition, a, b);
  }
};

template <class Activation>
void forward(const float* __restrict x, float* __restrict y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = Activation::template value<FloatMath>(x[i]);
}

template <class Activation>
void gradient(const float* __restrict x, const float* __restrict dy, float* __restrict dx,
              std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = dy[i] * Activation::template slope<FloatMath>(x[i]);
  }
}

template <class List>
struct Loops;
template <class... All>
struct Loops<ActivationList<All...>> {
  static constexpr ActivationKernels::Forward kForward[] = {forward<All>...};
  static constexpr ActivationKernels::Gradient kGradient[] = {gradient<All>...};
};

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(activation_kernels,
                       (ActivationKernels{
                           .forward = CONVSCOPE_ISA::Loops<Activations>::kForward,
                           .gradient = CONVSCOPE_ISA::Loops<Activations>::kGradient}))
