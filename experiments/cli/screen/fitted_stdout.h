// SPDX-License-Identifier: Apache-2.0
// fitted_stdout.h: while it stands, what goes to std::cout is broken so that it fits the terminal.
// Texts for people are written there (print_screen()); print_result() writes files of any format as
// they are.
#pragma once

#include <memory>
#include <streambuf>

namespace convscope {

class FittedStdout {
 public:
  FittedStdout();   // does nothing where stdout has no width
  ~FittedStdout();  // writes what is left
  FittedStdout(const FittedStdout&) = delete;
  FittedStdout& operator=(const FittedStdout&) = delete;

 private:
  std::unique_ptr<std::streambuf> buffer_;
  std::streambuf* before_ = nullptr;
};

}  // namespace convscope
