// SPDX-License-Identifier: Apache-2.0
// clean_text.cpp: makes text safe for a terminal.
#include "framework/io/clean_text.h"

#include <cstdint>

namespace convscope {
namespace {

struct Letter {
  std::size_t bytes = 1;
  std::uint32_t code = 0xFFFD;  // U+FFFD: invalid UTF-8
};

// Decodes the character at `at`. Rejects overlong forms and surrogates.
Letter letter_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[at + i]); };
  const std::uint8_t head = byte(0);
  if (head < 0x80) return {1, head};
  const std::size_t bytes = head >= 0xF0 ? 4 : head >= 0xE0 ? 3 : 2;
  if (head < 0xC2 || head > 0xF4 || text.size() - at < bytes) return {};
  std::uint32_t code = head & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  const bool shortest = bytes == 2 || code >= (bytes == 3 ? 0x800u : 0x10000u);
  if (!shortest || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return {};
  return {bytes, code};
}

bool acts(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x202A && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0xFFFD;
}

std::string cleaned(std::string_view text, bool one_line) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Letter letter = letter_at(text, at);
    const bool blank = letter.code == '\n' || letter.code == '\t';
    if (blank) {
      out += one_line ? ' ' : text[at];
    } else if (acts(letter.code)) {
      out += "\xEF\xBF\xBD";
    } else {
      out += text.substr(at, letter.bytes);
    }
    at += letter.bytes;
  }
  return out;
}

}  // namespace

std::string clean_text(std::string_view text) { return cleaned(text, false); }
std::string clean_line(std::string_view text) { return cleaned(text, true); }

}  // namespace convscope
