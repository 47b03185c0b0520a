// SPDX-License-Identifier: Apache-2.0
// op_files.h: helpers for tests of `convscope op`: a folder with arrays, and calls of the command
// in a separate process.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/experiments/report/run_here.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {

class OpFiles : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  std::string at(const std::string& name) const { return folder_ / name; }

  // Calls `convscope op <words> <more>` and returns its exit code. Stores stdout in output_ and
  // stderr in errors_.
  int call_op(const Words& words, const Words& more) {
    Words all = {"op"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), more.begin(), more.end());
    const Output called = run_here(all);
    output_ = called.out;
    errors_ = called.err;
    return called.code;
  }

  TemporaryFolder folder_;
  std::string output_, errors_;
};

}  // namespace convscope::testing
