// SPDX-License-Identifier: Apache-2.0
// stdout_file.h: the file that an option names by '-': what is written to it appears on stdout when
// the command has ended. All else that the command prints to stdout goes to stderr, so that a pipe
// gets the file alone.
#pragma once

#include <string>

namespace convscope {

class StdoutFile {
 public:
  StdoutFile() = default;  // while it stands, take() may be called once
  ~StdoutFile();
  StdoutFile(const StdoutFile&) = delete;
  StdoutFile& operator=(const StdoutFile&) = delete;

  static std::string take();  // the path to write to
  static bool is_taken();
};

}  // namespace convscope
