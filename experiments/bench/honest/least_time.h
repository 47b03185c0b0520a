// SPDX-License-Identifier: Apache-2.0
// least_time.h: a time in which the work cannot have been done.
//
// Two bounds of whatever algorithm: it multiplies and adds as much as it says itself, at the
// measured peak of its threads; and it reads its inputs once and writes its output once, at the
// fastest bandwidth that was measured (of an L1 cache, which is not measured: four times that of
// L2). Textbook FLOPs are no bound: Winograd and FFT need fewer. Below two thirds of a bound a time
// is called impossible: peaks that were measured on a busy machine are too low.
#pragma once

#include <string>

#include "framework/machine/ceilings.h"
#include "layers/conv2d/problem.h"

namespace convscope {

// "" or why `seconds` cannot be the time of so many FLOPs and bytes.
CONVSCOPE_API std::string impossible_time(const CpuCeilings& ceilings, double seconds, double flops,
                                          double bytes, int threads, DType factors = DType::f32);

// What every algorithm reads and writes: rows of x that no kernel covers are left out.
CONVSCOPE_API double least_bytes_of(const Conv2dProblem& problem);

}  // namespace convscope
