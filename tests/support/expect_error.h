// SPDX-License-Identifier: Apache-2.0
// expect_error.h: EXPECT_ERROR(kind, "part of the sentence", statement).
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "framework/check.h"

#define EXPECT_ERROR(expected_kind, part, ...)                                                    \
  do {                                                                                            \
    bool came = false;                                                                            \
    try {                                                                                         \
      __VA_ARGS__;                                                                                \
    } catch (const ::convscope::Error& error) {                                                   \
      came = true;                                                                                \
      EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(expected_kind)) << error.what(); \
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();         \
    }                                                                                             \
    EXPECT_TRUE(came) << "expected an error with: " << (part);                                    \
  } while (false)
