// SPDX-License-Identifier: Apache-2.0
// former_names_test.cpp: tests that former names are accepted with one warning, and that files of
// older versions can be read.
#include "framework/io/former_names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "framework/registry.h"

namespace convscope {
namespace {

TEST(FormerNames, AreAcceptedWithOneWarning) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(accepted_name("blocked"), "nchw16c");
  EXPECT_EQ(accepted_name("blocked"), "nchw16c");
  EXPECT_EQ(accepted_name("direct"), "direct");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "convscope: warning: [names] 'blocked' is now called 'nchw16c'; the next version will "
            "not know the former name\n");
  EXPECT_EQ(todays_name("blocked_y"), "nchw:nchw16c");
  EXPECT_EQ(todays_name("nchw16c_y"), "nchw:nchw16c");
  EXPECT_EQ(todays_name("channels_last"), "nhwc");
}

TEST(FormerNames, OfAlgorithmsFindTodaysAlgorithm) {
  Registry<int> table("algorithm");
  table.add("winograd_f4x3_fp16x3", 1, "a.cpp");
  table.add("implicit_gemm_tma_fp16x3", 2, "b.cpp");
  table.add("depthwise_nhwc", 3, "c.cpp");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(table.get("winograd_f4x3_halves"), 1);
  EXPECT_EQ(table.get("implicit_gemm_tma_halves"), 2);
  EXPECT_EQ(table.get("depthwise_channels_last"), 3);
  EXPECT_EQ(table.get("depthwise_channels_last"), 3);
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 3) << warnings;
  // If today's algorithm is not registered, its former name is unknown, too.
  EXPECT_EQ(Registry<int>("algorithm").find("winograd_f4x3_halves"), nullptr);
}

TEST(FormerNames, OfFilesAreReplacedAsWholeWords) {
  ::testing::internal::CaptureStderr();
  const std::string text =
      with_todays_names(R"({"peer": "onednn", "peer_median_ms": 4, "ratio_to_peer_min": 2,
 "ratio_to_peer": 1, "problem": "n=1,layout=blocked_y", "note": "a peer, blocked",
 "machine": {"ceilings": 1}, "algorithm": "winograd_f4x3_halves"})",
                        "old.json");
  EXPECT_EQ(text, R"({"baseline": "onednn", "baseline_median_ms": 4, "ratio_to_baseline_min": 2,
 "ratio_to_baseline": 1, "problem": "n=1,layout=nchw:nchw16c", "note": "a peer, blocked",
 "machine": {"peaks": 1}, "algorithm": "winograd_f4x3_fp16x3"})");
  EXPECT_EQ(with_todays_names("layout=channels_last,layout=blocked,layout=nchw16c_y", "b.csv"),
            "layout=nhwc,layout=nchw16c,layout=nchw:nchw16c");
  EXPECT_EQ(with_todays_names("speer_ms peer_ms2 layout=blockedness", "c.csv"),
            "speer_ms peer_ms2 layout=blockedness");
  const std::string warnings = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 1) << warnings;
  EXPECT_NE(warnings.find("old.json has names of an older version"), std::string::npos);
}

}  // namespace
}  // namespace convscope
