// SPDX-License-Identifier: Apache-2.0
// explain_memory_test.cpp: tests that `explain` runs no kernel: it times nothing, and accepts
// networks that are larger than the memory.
#include <gtest/gtest.h>

#include <filesystem>

#include "experiments/explain/explanation.h"
#include "framework/io/atomic_file.h"
#include "tests/support/cache_folder.h"
#include "tests/support/resident_memory.h"

namespace convscope {
namespace {

using testing::TemporaryFolder;

Explanation explained(const std::string& layers, const std::string& algorithm) {
  const TemporaryFolder root;
  write_file(root / "c.yaml",
             "name: small\nthreads: 1\n"
             "data: {set: synthetic_digits, train_size: 64, test_size: 32, batch_size: 32}\n"
             "conv: {algorithm: " +
                 algorithm + "}\nlayers: [" + layers +
                 ", {type: flatten}, {type: linear, out_features: 10}]\n");
  return explain_config(load_config(root / "c.yaml"));
}

// The weights would take 720 MB.
TEST(ExplainMemory, AHugeNetworkTakesNone) {
  const auto extra = testing::extra_resident_bytes([] {
    const Explanation of = explained(
        "{type: conv2d, name: c1, out_channels: 20000, kernel_size: 3}, "
        "{type: conv2d, name: c2, out_channels: 1000, kernel_size: 3}",
        "auto");
    ASSERT_EQ(of.layers.size(), 2u);
    EXPECT_TRUE(of.steps[0].error.empty()) << of.steps[0].error;
    ASSERT_NE(of.steps[0].plan, nullptr);
    EXPECT_GT(of.steps[0].plan->memory().arena_bytes, std::int64_t{1} << 30);
    EXPECT_TRUE(of.layers[1].directions[0].ran);
  });
  EXPECT_LT(extra, 300 << 20);
}

TEST(ExplainMemory, MeasureTimesNothing) {
  const testing::CacheFolder cache;
  const Explanation of =
      explained("{type: conv2d, name: c1, out_channels: 4, kernel_size: 3}", "measure");
  EXPECT_TRUE(of.layers[0].directions[0].ran);
  EXPECT_TRUE(std::filesystem::is_empty(cache.path()));
}

}  // namespace
}  // namespace convscope
