// SPDX-License-Identifier: Apache-2.0
// fitted_stdout.h: wraps std::cout to the terminal's width during its lifetime. Only texts for
// people go to std::cout (print_screen()); print_result() writes files of any format unchanged.
#pragma once

#include <memory>
#include <streambuf>

namespace convscope {

class FittedStdout {
 public:
  FittedStdout();   // does nothing where stdout has no width
  ~FittedStdout();  // writes the rest
  FittedStdout(const FittedStdout&) = delete;
  FittedStdout& operator=(const FittedStdout&) = delete;

 private:
  std::unique_ptr<std::streambuf> buffer_;
  std::streambuf* before_ = nullptr;
};

}  // namespace convscope
