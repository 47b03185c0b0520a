// SPDX-License-Identifier: Apache-2.0
// least_time.h: detects a time in which the work cannot be done.
//
// Two bounds hold for every algorithm. It executes the FLOPs that it states, at the measured peak
// of its threads. It reads its inputs once and writes its output once, at the fastest measured
// bandwidth (L1 is not measured: four times L2). Textbook FLOPs are not a bound: Winograd and FFT
// need fewer. A time below two thirds of a bound is impossible; the margin exists because peaks
// measured on a busy machine are too low.
#pragma once

#include <string>

#include "framework/machine/ceilings.h"
#include "layers/conv2d/problem.h"

namespace convscope {

// Returns "" or why `seconds` is too short for so many FLOPs and bytes.
CONVSCOPE_API std::string impossible_time(const CpuCeilings& ceilings, double seconds, double flops,
                                          double bytes, int threads, DType factors = DType::f32);

// Returns what every algorithm moves; rows of x that no kernel covers do not count.
CONVSCOPE_API double least_bytes_of(const Conv2dProblem& problem);

}  // namespace convscope
