// SPDX-License-Identifier: Apache-2.0
// cache_sizes.h: how much the data caches of a core hold, so that kernels cut their work to fit.
#pragma once

#include <cstddef>

#include "framework/export.h"

namespace convscope {

// In bytes: the first and second cache belong to a core, the third one is shared (0: none). What
// the system does not say is taken as 32 KiB, 1 MiB and 0. Read once; CONVSCOPE_CACHE_SIZES=L1,L2
// in the environment (bytes) takes the place of the first two, to try how kernels are cut for
// another machine.
struct CacheSizes {
  std::size_t l1, l2, l3;
};
CONVSCOPE_API const CacheSizes& cache_sizes();

}  // namespace convscope
