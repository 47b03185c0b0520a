// SPDX-License-Identifier: Apache-2.0
// least_time.h: detects measured times that are too short for the work.
//
// Every algorithm has two lower bounds. The first is the time of the FLOPs that its cost states, at
// the measured peak of its threads. The second is the time to read each input once and to write the
// output once, at the fastest measured bandwidth (L1 is not measured: 4 times the bandwidth of L2).
// Textbook FLOPs are not a bound, because Winograd and FFT need fewer. A time below two thirds of a
// bound is impossible. The margin is necessary, because a busy machine measures peaks too low.
#pragma once

#include <string>

#include "framework/machine/peaks.h"
#include "layers/conv2d/problem.h"

namespace convscope {

// Returns "" when `seconds` is possible for these FLOPs and bytes, else why it is too short.
CONVSCOPE_API std::string impossible_time(const CpuPeaks& peaks, double seconds, double flops,
                                          double bytes, int threads,
                                          DType operand_type = DType::f32);

// Returns the bytes that every algorithm must read and write. Rows of x that no kernel reaches do
// not count.
CONVSCOPE_API double least_bytes_of(const Conv2dProblem& problem);

}  // namespace convscope
