// SPDX-License-Identifier: Apache-2.0
// peak_int8_simd.cpp: measures the int8 peak: a loop that only adds products of u8 and i8 to
// i32 accumulators.
//
// A VNNI instruction takes 5 cycles and two start in each cycle, so at least 10 independent
// accumulators are needed to keep the units busy. The loop has 10 accumulators if there are 16
// registers, and 24 if there are 32; the other registers hold operands. Without VNNI, four
// instructions replace each VNNI instruction (int8_vector.h). The scalar copy of this file uses the
// vectors of vector4.
#include "experiments/bench/peaks/peak_kernels.h"
#include "framework/simd/int8_vector.h"
#include "framework/simd/int8_vector4.h"
#include "framework/simd/lane_pixels.h"

namespace convscope::CONVSCOPE_ISA {
namespace {

constexpr int kByteChains = wide::kRegisters == 32 ? 24 : 10;
constexpr int kMostWeightBytes = 8;  // of a lane

void multiply_add(std::int64_t rounds) {
  const std::uint8_t inputs[4] = {1, 0, 2, 1};
  std::int8_t weights[kWide * kMostWeightBytes];
  for (int i = 0; i < kWide * kMostWeightBytes; ++i)
    weights[i] = static_cast<std::int8_t>(i % 3 - 1);
  const auto x = wide::broadcast_quad(inputs);
  auto w = wide::load_weights(weights);
  wide::Ints chain[kByteChains];
#pragma GCC unroll 32
  for (int i = 0; i < kByteChains; ++i) chain[i] = wide::set_ints(i);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 32
    for (int i = 0; i < kByteChains; ++i) {
      w = opaque(w);  // otherwise the compiler computes equal products only once
      chain[i] = dot(chain[i], x, w);
    }
  }
  std::int32_t kept[kByteChains][kWide];
#pragma GCC unroll 32
  for (int i = 0; i < kByteChains; ++i) store_ints(kept[i], chain[i]);
  asm volatile("" ::"r"(kept) : "memory");  // otherwise the compiler removes the accumulators
}

}  // namespace
}  // namespace convscope::CONVSCOPE_ISA

CONVSCOPE_SIMD_KERNELS(byte_peak_kernels,
                       (BytePeakKernels{.multiply_add = CONVSCOPE_ISA::multiply_add,
                                        .flops_per_round = 2 * 4 * CONVSCOPE_ISA::kByteChains *
                                                           CONVSCOPE_ISA::kWide}))
