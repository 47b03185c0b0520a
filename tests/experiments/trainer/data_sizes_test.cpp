// SPDX-License-Identifier: Apache-2.0
// data_sizes_test.cpp: tests that a run fails if a data set has fewer images than the config
// requests.
#include <gtest/gtest.h>

#include "experiments/trainer/setup.h"

namespace convscope {
namespace {

std::string refusal(const DataConfig& data, std::int64_t images) {
  try {
    check_data_sizes(data, images);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "";
}

TEST(DataSizes, counts_what_validation_and_limit_leave) {
  DataConfig data;
  data.set = "digits";
  data.batch_size = 60;
  EXPECT_EQ(refusal(data, 60), "");
  EXPECT_NE(refusal(data, 59).find("expected at most the 59 training images"), std::string::npos);
  data.val_split = 41;
  EXPECT_NE(refusal(data, 100).find("expected at most the 59 training images"), std::string::npos);
  data.val_split = 40;
  EXPECT_EQ(refusal(data, 100), "");
  data.limit = 50;
  EXPECT_NE(refusal(data, 100).find("expected at most the 50 training images"), std::string::npos);
  data.val_split = 100;
  EXPECT_NE(refusal(data, 100).find("expected fewer than the 100 training images of digits"),
            std::string::npos);
}

}  // namespace
}  // namespace convscope
