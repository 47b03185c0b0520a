// SPDX-License-Identifier: Apache-2.0
// json_text.h: JSON as the text of a file.
#pragma once

#include <string>

namespace convscope {

// With a line end behind it. Names of files and arguments may hold any bytes; those that are no
// UTF-8 become U+FFFD, because a JSON reader would refuse the whole file.
template <class Json>
std::string json_text(const Json& value, int indent = 2) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace convscope
