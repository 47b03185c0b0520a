// SPDX-License-Identifier: Apache-2.0
// json_text.h: converts JSON to the text of a file, and describes errors in invalid JSON.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace convscope {

// Returns the text with a line end after the last line. File names and arguments may contain any
// bytes. Invalid UTF-8 becomes U+FFFD, because a JSON reader would refuse the whole file.
template <class Json>
std::string json_text(const Json& value, int indent = 2) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Returns the message of the JSON library's error without the library's name and number. Bytes that
// are not printable ASCII become \xNN, because the message quotes the file:
// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." -> "parse error at ...".
inline std::string json_problem(std::string_view what) {
  constexpr std::string_view kLibrary = "[json.exception.";
  const std::size_t end = what.find("] ");
  if (what.starts_with(kLibrary) && end != std::string_view::npos) what.remove_prefix(end + 2);
  std::string out;
  for (const char letter : what) {
    if (letter >= ' ' && letter <= '~') {
      out += letter;
    } else {
      char code[5];
      std::snprintf(code, sizeof code, "\\x%02X", static_cast<unsigned>(letter) & 0xFFu);
      out += code;
    }
  }
  return out;
}

}  // namespace convscope
