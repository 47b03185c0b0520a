// SPDX-License-Identifier: Apache-2.0
// cost.h: what one call of an algorithm does, as exact counts. model.h turns counts into time with
// the coefficients of a device (device_table.h). So an algorithm contains no fitted number.
//
//   Conv2dCost cost(const Conv2dProblem& z, Direction direction) {
//     const Tiling plan(z, direction);
//     return {.flops = z.nominal_flops(),
//             .bytes = z.nominal_bytes(),
//             .issued = 2 * number(plan.tiles * plan.tile_floats * plan.terms),
//             .tiles = number(plan.tiles),
//             .chunks = number(plan.chunks)};
//   }
//
// An algorithm counts only what takes time. A loop whose length depends on the problem belongs to
// one of the counts; loops of constant length belong to `calls`, which is 1.
#pragma once

#include <array>
#include <cstdint>

namespace convscope {

struct Cost {
  // FLOPs as a textbook counts them, for tables. An algorithm with fewer products has fewer.
  double flops = 0;
  // Bytes to and from memory: each tensor once, and again where a pass reads it again.
  double bytes = 0;

  // ---- CPU: counts over all threads -------------------------------------------------------------
  // FLOPs of the vector instructions of the products, with empty lanes, padding, and inserted
  // zeros.
  double issued = 0;
  // Vectors that the innermost loop loads in addition to the multiplications, for example one
  // vector of
  // weights for each step of a register tile. Tiles with few accumulators wait for these loads.
  double loads = 0;
  double tiles = 0;        // register tiles: cleared or loaded at the start, stored at the end
  double copied = 0;       // elements copied in the order of memory, such as rows of a panel
  double transposed = 0;   // elements moved to another order, such as channels into lanes
  double transformed = 0;  // elements that transforms (Winograd, FFT) or lane sums compute
  double listed = 0;       // scalar steps: entries of lists, offsets, starts of short loops
  double cached = 0;       // bytes read again from L2 or beyond, such as weights for each chunk
  double prepared = 0;     // elements that prepare_weights() writes
  double regions = 1;      // parallel loops, one after another
  double chunks = 0;       // independent pieces of work of the longest loop; 0: many
  double calls = 1;

  // Distinguishes kernels of one algorithm whose counts take different times, such as a kernel for
  // each layout: "nchw16c". Each has its own coefficients.
  const char* schedule = "";

  // ---- GPU --------------------------------------------------------------------------------------
  // The share of the peak that the kernel reaches for the operands' type.
  double peak_share = 1;
  double prepare_part = 0;    // the share in [0, 1) of the estimate that prepare_weights() takes
  double pass_bytes = 0;      // moved by separate kernels: transforms, im2col, transposes
  double launches = 1;        // kernels, one after the other
  bool tensor_cores = false;  // the peak is that of the tensor cores: for f16/bf16 problems their
                              // own, for others TF32 (f32 by three products has 3 x the FLOPs)
  // The executed FLOPs as a textbook counts them: an f32 product that is computed as three fp16
  // products counts once. (`flops` counts products relative to the rate of the tensor cores' peak.)
  // 0: the same as `flops`.
  double executed_flops = 0;

  double executed() const { return executed_flops > 0 ? executed_flops : flops; }
};

inline double number(std::int64_t value) { return static_cast<double>(value); }

// One coefficient for each count. `unit` says what coefficient 1 means: `peak` the time at the peak
// rate of the operands' type, `memory` the time at the bandwidth of memory, `cycle` one cycle of
// one core.
enum class CostUnit { peak, memory, cycle };
struct CostTerm {
  const char* name;
  double Cost::*count;
  CostUnit unit;
};
// `bytes` has three coefficients, for data that fit into L2, into L3, or into neither.
inline constexpr std::array<CostTerm, 14> kCostTerms = {{
    {"issued", &Cost::issued, CostUnit::peak},
    {"bytes_in_l2", &Cost::bytes, CostUnit::memory},
    {"bytes_in_l3", &Cost::bytes, CostUnit::memory},
    {"bytes", &Cost::bytes, CostUnit::memory},
    {"cached", &Cost::cached, CostUnit::memory},
    {"loads", &Cost::loads, CostUnit::cycle},
    {"tiles", &Cost::tiles, CostUnit::cycle},
    {"copied", &Cost::copied, CostUnit::cycle},
    {"transposed", &Cost::transposed, CostUnit::cycle},
    {"transformed", &Cost::transformed, CostUnit::cycle},
    {"listed", &Cost::listed, CostUnit::cycle},
    {"prepared", &Cost::prepared, CostUnit::cycle},
    {"regions", &Cost::regions, CostUnit::cycle},
    {"calls", &Cost::calls, CostUnit::cycle},
}};
using Coefficients = std::array<double, kCostTerms.size()>;

}  // namespace convscope
