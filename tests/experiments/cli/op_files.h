// SPDX-License-Identifier: Apache-2.0
// op_files.h: shared parts of tests of `convscope op`: a folder for arrays, and calls of the
// command in a separate process.
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

  // Returns the exit code of `convscope op <words> <more>`; output_ and errors_ are its output.
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
