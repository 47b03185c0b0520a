// SPDX-License-Identifier: Apache-2.0
// gelu_simd.cpp: plain f32 loops of gelu.h that the compiler vectorises, once per instruction set.
//
// Numerics  erf is a quotient of polynomials in x^2, of degrees 6 and 4. Its error is at most 4e-7;
//           from |x| = 3.83 on, erf is 1 or -1
// Source    G. Guennebaud, B. Jacob and others: Eigen, generic_fast_erf
#include "framework/simd/simd.h"
#include "framework/simd/simd_math.h"
#include "layers/gelu.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

CONVSCOPE_INLINE float erf_of(float x) {
  constexpr float kEnd = 3.8325069f;  // 1 - erf is 2^-24 here
  const float x2 = x * x;
  float p = -2.72614225801306e-10f;
  p = p * x2 + 2.77068142495902e-08f;
  p = p * x2 - 2.10102402082508e-06f;
  p = p * x2 - 5.69250639462346e-05f;
  p = p * x2 - 7.34990630326855e-04f;
  p = p * x2 - 2.95459980854025e-03f;
  p = p * x2 - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * x2 - 2.13374055278905e-04f;
  q = q * x2 - 1.68282697438203e-03f;
  q = q * x2 - 7.37332916720468e-03f;
  q = q * x2 - 1.42647390514189e-02f;
  const float erf = choose_if(x >= kEnd, 1.0f, x * p / q);  // NaN passes through
  return choose_if(x <= -kEnd, -1.0f, erf);
}

CONVSCOPE_INLINE float normal_distribution(float x) {
  return 0.5f * (1.0f + erf_of(x * 0.70710678f));
}

void forward(const float* __restrict x, float* __restrict y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * normal_distribution(x[i]);
}

// Beyond 15 the density is below 1e-49, which is 0 in f32.
void gradient(const float* __restrict x, const float* __restrict dy, float* __restrict dx,
              std::int64_t n) {
  constexpr float kPeak = 0.39894228f;  // of the density
  for (std::int64_t i = 0; i < n; ++i) {
    float near = choose_if(x[i] > 15.0f, 15.0f, x[i]);
    near = choose_if(near < -15.0f, -15.0f, near);
    const float density = kPeak * exp_of(-0.5f * near * near);
    dx[i] = dy[i] * (normal_distribution(x[i]) + near * density);
  }
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(gelu_loops, (convscope::GeluLoops{.forward = CONVSCOPE_ISA::forward,
                                                         .gradient = CONVSCOPE_ISA::gradient}))
