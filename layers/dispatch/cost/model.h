// SPDX-License-Identifier: Apache-2.0
// model.h: the time of a call, from its counts and the coefficients of the device.
//
//   seconds = sum over terms of coefficient x count x (time of one unit)
//
// CPU   Each thread has its share of the counts. Terms that chunks share are multiplied by the
//       imbalance ceil(chunks / threads) threads / chunks; `regions` and `calls` are not divided
//       among threads.
// GPU   The SM with most blocks counts (cost.h).
//
// The time of one unit follows from the peaks of this machine (framework/machine/peaks.h), so one
// table of coefficients serves machines of different clock and memory.
#pragma once

#include <string>

#include "framework/device.h"
#include "framework/dtype.h"
#include "framework/export.h"
#include "framework/machine/peaks.h"
#include "layers/dispatch/cost/cost.h"
#include "layers/dispatch/direction.h"

namespace convscope {

// The kernel whose coefficients estimate a cost. `schedule` comes from the cost.
struct CostKey {
  const char* operation;
  const char* algorithm;
  Direction direction;
};

// How weights are used: once, as in a training step, or by many calls, as in inference.
enum class WeightUse { once, often };

// Returns the milliseconds that `auto` expects on this machine. If weights are used often, they are
// already prepared: preparation takes no time, but each call reads `prepared_bytes`.
CONVSCOPE_API double estimated_ms(const CostKey& key, const Cost& cost, DeviceType device,
                                  DType operand_type, WeightUse use = WeightUse::once,
                                  std::size_t prepared_bytes = 0);
// Returns the same for work that no algorithm does, such as a copy: every coefficient is the
// default one.
CONVSCOPE_API double estimated_ms(const Cost& cost, DeviceType device, DType operand_type);

// Returns what takes most of the estimated time: "arithmetic", "memory" or, on a GPU, "launches".
CONVSCOPE_API const char* limit_of(const CostKey& key, const Cost& cost, DeviceType device,
                                   DType operand_type);

// Returns the seconds of each term for coefficient 1. The fit of `convscope tune` solves for the
// coefficients.
CONVSCOPE_API Coefficients seconds_per_coefficient(const Cost& cost, DeviceType device,
                                                   const MachinePeaks& peaks, DType operand_type,
                                                   WeightUse use, std::size_t prepared_bytes);
// Returns the same for the choice of a schedule, which must not depend on the number of threads.
CONVSCOPE_API Coefficients seconds_of_schedule(const Cost& cost, DeviceType device,
                                               const MachinePeaks& peaks, DType operand_type);
// Returns their sum, weighted with the coefficients: the estimated seconds.
CONVSCOPE_API double estimated_seconds(const Coefficients& terms, const Coefficients& coefficients);

// Returns the FLOPs that a core computes in a cycle with the current instruction set: 8 without
// FMA, 32 with 8 lanes, 64 with 16 lanes; for integers times peak_of_bytes(). The compiler
// vectorises scalar code with 4 lanes, so vector4 and scalar have the same peak.
CONVSCOPE_API double flops_per_cycle(DType operand_type);

}  // namespace convscope
