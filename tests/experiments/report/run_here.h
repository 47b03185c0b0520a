// SPDX-License-Identifier: Apache-2.0
// run_here.h: calls the program's commands inside the test process and returns their output as
// text.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "experiments/cli/cli.h"

namespace convscope::testing {

struct Output {
  int code = 0;
  std::string out, err;
};

inline Output run_here(std::vector<std::string> words) {
  words.insert(words.begin(), "convscope");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Output out;
  out.code = run_command_line(static_cast<int>(words.size()), arguments.data());
  out.out = ::testing::internal::GetCapturedStdout();
  out.err = ::testing::internal::GetCapturedStderr();
  return out;
}

}  // namespace convscope::testing
