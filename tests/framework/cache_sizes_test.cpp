// SPDX-License-Identifier: Apache-2.0
// cache_sizes_test.cpp: tests where tilings get the cache sizes from: the operating system, or an
// environment variable.
#include "framework/machine/cache_sizes.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace convscope {
namespace {

// The variable CONVSCOPE_CACHE_SIZES sets the two cache sizes. A text that does not consist of two
// sizes has no effect.
TEST(CacheSizes, AreGivenByTheEnvironment) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a new process reads them again
  const auto exits_with = [](const char* given, std::size_t l1, std::size_t l2) {
    EXPECT_EXIT(
        {
          setenv("CONVSCOPE_CACHE_SIZES", given, 1);
          const CacheSizes& sizes = cache_sizes();
          std::exit(sizes.l1 == l1 && sizes.l2 == l2 ? 0 : 1);
        },
        ::testing::ExitedWithCode(0), "")
        << given;
  };
  exits_with("2048,65536", 2048, 65536);
  unsetenv("CONVSCOPE_CACHE_SIZES");
  const std::size_t l1 = cache_sizes().l1, l2 = cache_sizes().l2;
  EXPECT_GE(l1, 8 * 1024U);
  EXPECT_GE(l2, l1);
  for (const char* bad : {"", "2048", "2048,", "two,65536", "2048,65536 bytes", "10,65536"}) {
    exits_with(bad, l1, l2);
  }
}

}  // namespace
}  // namespace convscope
