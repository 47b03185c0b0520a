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
#include <span>

#include "framework/device.h"

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

  // ---- GPU: the grid of the kernel with the products, and work next to it -----------------------
  // `issued` and `cached` are counts over all blocks, as on the CPU over all threads.
  double blocks = 0;    // thread blocks, of equal work; 0: many
  double resident = 1;  // of them on one SM at once
  double chain = 0;     // steps that the longest block executes one after another
  double copies = 0;    // copies to shared memory that a thread makes one after another
  double waits = 0;     // other waits of a block one after another: barriers, list entries, sums
  double listed_warps = 0;    // instructions of warps besides products, over all blocks
  double stored = 0;          // elements that are stored one by one, over all blocks
  double pass_bytes = 0;      // moved by separate kernels: transforms, im2col, sums of parts
  double launches = 1;        // kernels one after the other
  double prepared_bytes = 0;  // moved by prepare_weights(), in `prepare_launches` kernels
  double prepare_launches = 0;
  bool tensor_cores = false;  // `issued` runs at the peak of the tensor cores: for f16/bf16/int8
                              // problems their own, for f32 problems that of TF32 (half of f16's)
};

inline double number(std::int64_t value) { return static_cast<double>(value); }

// One coefficient for each count. `unit` says what coefficient 1 means: `peak` the time at the peak
// rate of the operands' type, `memory` the time at the bandwidth of memory, `cycle` one cycle of
// one core or SM, `launch` the time of a launch.
enum class CostUnit { peak, memory, cycle, launch };
struct CostTerm {
  const char* name;
  CostUnit unit;
};
// `bytes` has three coefficients, for data that fit into L2, into L3, or into neither.
inline constexpr std::array<CostTerm, 14> kCpuTerms = {{
    {"issued", CostUnit::peak},
    {"bytes_in_l2", CostUnit::memory},
    {"bytes_in_l3", CostUnit::memory},
    {"bytes", CostUnit::memory},
    {"cached", CostUnit::memory},
    {"loads", CostUnit::cycle},
    {"tiles", CostUnit::cycle},
    {"copied", CostUnit::cycle},
    {"transposed", CostUnit::cycle},
    {"transformed", CostUnit::cycle},
    {"listed", CostUnit::cycle},
    {"prepared", CostUnit::cycle},
    {"regions", CostUnit::cycle},
    {"calls", CostUnit::cycle},
}};
// An SM runs `blocks` / SMs of the blocks, rounded up, in rounds of
// `resident`. The first five are waits of one block in each round, the next six the work of all
// blocks of the SM that has most.
inline constexpr std::array<CostTerm, 18> kGpuTerms = {{
    {"rounds", CostUnit::cycle},  // begin and end of a block
    {"chain", CostUnit::cycle},
    {"copies", CostUnit::cycle},
    {"waits", CostUnit::cycle},
    {"alone", CostUnit::peak},  // FLOPs of one block on an idle SM
    {"issued", CostUnit::peak},
    {"blocks", CostUnit::cycle},
    {"steps", CostUnit::cycle},  // `chain` of all blocks
    {"cached", CostUnit::memory},
    {"listed_warps", CostUnit::cycle},
    {"stored", CostUnit::cycle},
    {"bytes_in_l2", CostUnit::memory},
    {"bytes", CostUnit::memory},
    {"pass_bytes_in_l2", CostUnit::memory},
    {"pass_bytes", CostUnit::memory},
    {"launches", CostUnit::launch},
    {"prepared_bytes", CostUnit::memory},
    {"prepare_launches", CostUnit::launch},
}};
// One number for each term of a device; the CPU has fewer terms, and 0 after them.
using Coefficients = std::array<double, kGpuTerms.size()>;

inline std::span<const CostTerm> cost_terms(DeviceType device) {
  if (device == DeviceType::cpu) return kCpuTerms;
  return kGpuTerms;
}

}  // namespace convscope
