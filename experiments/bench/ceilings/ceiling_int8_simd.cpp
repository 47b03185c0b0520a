// SPDX-License-Identifier: Apache-2.0
// ceiling_int8_simd.cpp: peak arithmetic on bytes, u8 times i8 added to i32, without anything else
// in the way.
//
// With VNNI a product takes 5 cycles and two start in each cycle, so 10 chains keep the units busy;
// 12 (of 16 registers) or 24 (of 32) leave some slack. Without it, four instructions make one
// (int8_vector.h), and the factors take four registers more.
#include "experiments/bench/ceilings/ceiling_kernels.h"
#include "framework/simd/int8_vector.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kByteChains = kRegisters == 32 ? 24 : 10;

// The compiler must believe that the factor is another one, or equal products would be made once,
// and that sums are used.
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

void multiply_add(std::int64_t rounds) {
  alignas(64) std::uint8_t inputs[4] = {1, 0, 2, 1};
  alignas(64) std::int8_t weights[kLanes * kWeightBytes];
  for (int i = 0; i < kLanes * kWeightBytes; ++i) weights[i] = static_cast<std::int8_t>(i % 3 - 1);
  const Quad x = broadcast_quad(inputs);
  WeightQuad w = load_weights(weights);
  Ints chain[kByteChains];
#pragma GCC unroll 32
  for (int i = 0; i < kByteChains; ++i) chain[i] = set_ints(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kByteChains; ++i) {
      renew(w);
      chain[i] = dot(chain[i], x, w);
    }
  }
#pragma GCC unroll 32
  for (int i = 0; i < kByteChains; ++i) use(chain[i]);
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(byte_ceiling_kernels,
                       (ByteCeilingKernels{.multiply_add = CONVSCOPE_ISA::multiply_add,
                                           .flops_per_round = 2 * 4 * CONVSCOPE_ISA::kByteChains *
                                                              CONVSCOPE_ISA::kLanes}))
