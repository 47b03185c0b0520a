// SPDX-License-Identifier: Apache-2.0
// text_of.h: returns the content of a file as text, or "" if the file does not exist.
#pragma once

#include <fstream>
#include <sstream>
#include <string>

namespace convscope::testing {

inline std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

}  // namespace convscope::testing
