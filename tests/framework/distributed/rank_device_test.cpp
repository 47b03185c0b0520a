// SPDX-License-Identifier: Apache-2.0
// rank_device_test.cpp: the GPU that each process of a host uses.
#include "framework/distributed/rank_device.h"

#include <gtest/gtest.h>

namespace convscope {
namespace {

TEST(RankDevice, AllGpusAreCounted) {
  EXPECT_EQ(gpu_of_rank(0, nullptr), "0");
  EXPECT_EQ(gpu_of_rank(3, nullptr), "3");
}

TEST(RankDevice, TheVisibleOnesAreTakenInTheirOrder) {
  EXPECT_EQ(gpu_of_rank(0, "2,5,7"), "2");
  EXPECT_EQ(gpu_of_rank(1, "2,5,7"), "5");
  EXPECT_EQ(gpu_of_rank(2, "2,5,7"), "7");
  EXPECT_EQ(gpu_of_rank(1, "GPU-8932f937,GPU-4e7d10a2"), "GPU-4e7d10a2");
}

TEST(RankDevice, FewerGpusThanProcessesLeaveNone) {
  EXPECT_EQ(gpu_of_rank(3, "2,5,7"), "");
  EXPECT_EQ(gpu_of_rank(1, "0"), "");
  EXPECT_EQ(gpu_of_rank(0, ""), "");
}

}  // namespace
}  // namespace convscope
