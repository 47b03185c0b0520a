// SPDX-License-Identifier: Apache-2.0
// link_test.cpp: what `explain --network` takes, and what it says of the rest.
#include "experiments/explain/ranks/link.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace convscope {
namespace {

TEST(NetworkLink, CountsBitsAndBytes) {
  EXPECT_DOUBLE_EQ(parse_link("--network", "25Gb").bytes_per_s, 3.125e9);
  EXPECT_DOUBLE_EQ(parse_link("--network", "100Mb").bytes_per_s, 12.5e6);
  EXPECT_DOUBLE_EQ(parse_link("--network", "0.8Tb").bytes_per_s, 100e9);
  EXPECT_DOUBLE_EQ(parse_link("--network", "12.5GB").bytes_per_s, 12.5e9);
  EXPECT_DOUBLE_EQ(parse_link("--network", "900MB").bytes_per_s, 900e6);
  EXPECT_DOUBLE_EQ(parse_link("--network", "1TB").bytes_per_s, 1e12);
}

TEST(NetworkLink, HasTheLatencyBehindTheCommaOrTheDefault) {
  EXPECT_DOUBLE_EQ(parse_link("--network", "25Gb").latency_s, kDefaultLatencySeconds);
  EXPECT_DOUBLE_EQ(parse_link("--network", "25Gb,20us").latency_s, 20e-6);
  EXPECT_DOUBLE_EQ(parse_link("--network", "25Gb,1.5ms").latency_s, 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_link("--network", "25Gb,800ns").latency_s, 800e-9);
  EXPECT_DOUBLE_EQ(parse_link("--network", "25Gb,0us").latency_s, 0);
  EXPECT_GT(parse_link("--inside", "nvlink").bytes_per_s, 100e9);
}

TEST(NetworkLink, RefusesWhatIsNoRate) {
  for (const char* const wrong : {"", "25", "25gb", "25 Gb", "Gb", "-1Gb", "0Gb", "nanGb", "infGb",
                                  "1e3Gb", "25Gbit", "25Gb/s", ",20us", "25Gb20us", "NVLINK"}) {
    EXPECT_ERROR(ErrorKind::kInvalid, "expected --network with what passes in a second",
                 parse_link("--network", wrong));
  }
  EXPECT_ERROR(ErrorKind::kInvalid, "got '25gb'", parse_link("--network", "25gb"));
  EXPECT_ERROR(ErrorKind::kInvalid, "expected --inside", parse_link("--inside", "fast"));
}

TEST(NetworkLink, RefusesWhatIsNoLatency) {
  for (const char* const wrong :
       {"25Gb,", "25Gb,20", "25Gb,us", "25Gb,-1us", "25Gb,20us,", "25Gb,20 us"}) {
    EXPECT_ERROR(ErrorKind::kInvalid, "with a latency after the comma",
                 parse_link("--network", wrong));
  }
}

TEST(NetworkLink, IsWrittenSoThatItIsReadTheSame) {
  for (const Link link :
       {Link{1.93e9, 85.4e-6}, Link{412e6, 1.2e-3}, Link{1.17e11, 0.31e-6}, Link{12.5e6, 0}}) {
    const Link back = parse_link("--network", link_words(link));
    EXPECT_NEAR(back.bytes_per_s, link.bytes_per_s, 0.006 * link.bytes_per_s) << link_words(link);
    EXPECT_NEAR(back.latency_s, link.latency_s, 0.006 * link.latency_s) << link_words(link);
  }
  EXPECT_EQ(link_words({1.93e9, 85.4e-6}), "1.93GB,85.4us");
  EXPECT_EQ(link_text({3.125e9, 20e-6}), "25 Gb/s (3.12 GB/s), 20 us");
}

TEST(NetworkLink, OfThisMachinesMemoryIsMeasured) {
  const Link link = measured_shared_memory();
  EXPECT_GT(link.bytes_per_s, 1e7);
  EXPECT_LT(link.bytes_per_s, 1e13);
}

}  // namespace
}  // namespace convscope
