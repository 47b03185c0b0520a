// SPDX-License-Identifier: Apache-2.0
// cache_sizes.cpp: asks the system for the sizes of the caches; implausible sizes count as unknown.
#include "framework/machine/cache_sizes.h"

#include <unistd.h>

#include <cstdlib>

namespace convscope {
namespace {

constexpr std::size_t kKiB = 1024;

std::size_t asked(int name, std::size_t least, std::size_t otherwise) {
  const long bytes = sysconf(name);
  return bytes > 0 && static_cast<std::size_t>(bytes) >= least ? static_cast<std::size_t>(bytes)
                                                               : otherwise;
}

CacheSizes read_sizes() {
  CacheSizes out{.l1 = asked(_SC_LEVEL1_DCACHE_SIZE, 8 * kKiB, 32 * kKiB),
                 .l2 = asked(_SC_LEVEL2_CACHE_SIZE, 128 * kKiB, kKiB * kKiB),
                 .l3 = asked(_SC_LEVEL3_CACHE_SIZE, 0, 0)};
  // Small sizes are permitted: tests use them to divide small problems in every possible way.
  if (const char* const given = std::getenv("CONVSCOPE_CACHE_SIZES")) {
    char* end = nullptr;
    const unsigned long long l1 = std::strtoull(given, &end, 10);
    const unsigned long long l2 = *end == ',' ? std::strtoull(end + 1, &end, 10) : 0;
    if (*end == '\0' && l1 >= kKiB && l2 >= kKiB) {
      out.l1 = l1;
      out.l2 = l2;
    }
  }
  return out;
}

}  // namespace

const CacheSizes& cache_sizes() {
  static const CacheSizes sizes = read_sizes();
  return sizes;
}

}  // namespace convscope
