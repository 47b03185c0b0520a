// SPDX-License-Identifier: Apache-2.0
// peak_int8_simd.cpp: measures the int8 peak: a loop that only adds products of u8 and i8 to
// i32 accumulators.
//
// A VNNI instruction takes 5 cycles and two start in each cycle, so at least 10 independent
// accumulators are needed to keep the units busy. The loop has 10 accumulators if there are 16
// registers, and 24 if there are 32; the other registers hold operands. Without VNNI, four
// instructions replace each VNNI instruction (int8_vector.h). The scalar copy of this file uses
// SSE2 vectors, which every x86-64 has.
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "experiments/bench/peaks/peak_kernels.h"
#include "framework/simd/int8_vector.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kByteChains = kRegisters == 32 ? 24 : 10;

// `renew` hides the operand from the compiler, which would otherwise compute equal products only
// once. `use` keeps the compiler from removing the accumulators.
#if defined(CONVSCOPE_ISA_IS_SCALAR) && defined(__SSE2__)
constexpr int kByteLanes = 4;
using Sums = __m128i;
struct Factor {
  __m128i even, odd;  // i16
};
CONVSCOPE_INLINE Factor some_factor() { return {_mm_set1_epi16(1), _mm_set1_epi16(-1)}; }
CONVSCOPE_INLINE Sums sums_of(int a) { return _mm_set1_epi32(a); }
CONVSCOPE_INLINE Sums add_products(Sums sums, Factor x, Factor w) {
  const __m128i pairs = _mm_add_epi32(_mm_madd_epi16(x.even, w.even), sums);
  return _mm_add_epi32(_mm_madd_epi16(x.odd, w.odd), pairs);
}
CONVSCOPE_INLINE void renew(Factor& w) { asm volatile("" : "+x"(w.even), "+x"(w.odd)); }
CONVSCOPE_INLINE void use(Sums sums) { asm volatile("" ::"x"(sums)); }
#else
constexpr int kByteLanes = kLanes;
using Sums = Ints;
using Factor = WeightQuad;
CONVSCOPE_INLINE Sums sums_of(int a) { return set_ints(a); }
CONVSCOPE_INLINE Sums add_products(Sums sums, Quad x, WeightQuad w) { return dot(sums, x, w); }
#if defined(CONVSCOPE_ISA_IS_SCALAR)
CONVSCOPE_INLINE void renew(WeightQuad& w) { asm volatile("" : "+r"(w.p)::"memory"); }
CONVSCOPE_INLINE void use(Ints sums) { asm volatile("" ::"r"(sums.v)); }
#elif CONVSCOPE_ISA_VNNI
CONVSCOPE_INLINE void renew(WeightQuad& w) { asm volatile("" : "+v"(w.v)); }
CONVSCOPE_INLINE void use(Ints sums) { asm volatile("" ::"v"(sums.v)); }
#else
CONVSCOPE_INLINE void renew(WeightQuad& w) { asm volatile("" : "+v"(w.even), "+v"(w.odd)); }
CONVSCOPE_INLINE void use(Ints sums) { asm volatile("" ::"v"(sums.v)); }
#endif
#endif

void multiply_add(std::int64_t rounds) {
#if defined(CONVSCOPE_ISA_IS_SCALAR) && defined(__SSE2__)
  const Factor x = some_factor();
  Factor w = some_factor();
#else
  alignas(64) std::uint8_t inputs[4] = {1, 0, 2, 1};
  alignas(64) std::int8_t weights[kLanes * kWeightBytes];
  for (int i = 0; i < kLanes * kWeightBytes; ++i) weights[i] = static_cast<std::int8_t>(i % 3 - 1);
  const Quad x = broadcast_quad(inputs);
  WeightQuad w = load_weights(weights);
#endif
  Sums chain[kByteChains];
#pragma GCC unroll 32
  for (int i = 0; i < kByteChains; ++i) chain[i] = sums_of(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kByteChains; ++i) {
      renew(w);
      chain[i] = add_products(chain[i], x, w);
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kByteChains; ++i) use(chain[i]);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(byte_peak_kernels,
                       (BytePeakKernels{.multiply_add = CONVSCOPE_ISA::multiply_add,
                                        .flops_per_round = 2 * 4 * CONVSCOPE_ISA::kByteChains *
                                                           CONVSCOPE_ISA::kByteLanes}))
