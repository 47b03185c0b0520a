// SPDX-License-Identifier: Apache-2.0
// stdout.h: what a command writes to stdout: files ('-' as the value of an option), and texts that
// fit the terminal.
#pragma once

#include <memory>
#include <streambuf>
#include <string>

namespace convscope {

// The temporary file that replaces '-' as the value of an option. Its content appears on stdout
// when the command has ended. All other output on stdout goes to stderr, so that a pipe gets only
// the file.
class StdoutFile {
 public:
  StdoutFile() = default;  // take() may be called once during its lifetime
  ~StdoutFile();
  StdoutFile(const StdoutFile&) = delete;
  StdoutFile& operator=(const StdoutFile&) = delete;

  static std::string take();  // the path to write to
  static bool is_taken();
};

// Wraps std::cout to the terminal's width during its lifetime. Only texts for people go to
// std::cout (print_screen()); print_result() writes files of any format unchanged.
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
