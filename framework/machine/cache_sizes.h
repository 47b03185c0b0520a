// SPDX-License-Identifier: Apache-2.0
// cache_sizes.h: the sizes of a core's data caches, to which kernels adapt their tilings.
#pragma once

#include <cstddef>

#include "framework/export.h"

namespace convscope {

// Sizes in bytes. L1 and L2 belong to a core, L3 is shared (0: none). Unknown sizes count as 32
// KiB, 1 MiB and 0. The sizes are read once. The environment variable CONVSCOPE_CACHE_SIZES=L1,L2
// (bytes) replaces the sizes of L1 and L2, to try the tilings of another machine.
struct CacheSizes {
  std::size_t l1, l2, l3;
};
CONVSCOPE_API const CacheSizes& cache_sizes();

}  // namespace convscope
