// SPDX-License-Identifier: Apache-2.0
// some_peaks.h: invented values in place of measured peaks, for tests. The machine has two cores
// and no L3.
#pragma once

#include "framework/machine/peaks.h"

namespace convscope::testing {

inline CpuPeaks some_peaks() {
  return {.cores = 2,
          .flops = {100e9, 150e9},
          .l2_read = {1e11, 2e11},
          .l2_copy = {1e11, 2e11},
          .l3_read = {0, 0},
          .l3_copy = {0, 0},
          .dram_read = {20e9, 30e9},
          .dram_copy = {10e9, 15e9},
          .l2_bytes = 1 << 20,
          .l3_bytes = 0};
}

}  // namespace convscope::testing
