// SPDX-License-Identifier: Apache-2.0
// stdout_file.h: the temporary file that replaces '-' as the value of an option. Its content
// appears on stdout when the command has ended. All other output on stdout goes to stderr, so that
// a pipe gets only the file.
#pragma once

#include <string>

namespace convscope {

class StdoutFile {
 public:
  StdoutFile() = default;  // take() may be called once during its lifetime
  ~StdoutFile();
  StdoutFile(const StdoutFile&) = delete;
  StdoutFile& operator=(const StdoutFile&) = delete;

  static std::string take();  // the path to write to
  static bool is_taken();
};

}  // namespace convscope
