// SPDX-License-Identifier: Apache-2.0
// bytes.h: reads files into memory, and converts little-endian numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/tensor.h"

namespace convscope {

// The content of a file. Every parser in this folder takes Bytes, so that tests need no disk. An
// overload with a path first reads the file.
using Bytes = std::span<const std::uint8_t>;

using NamedTensors = std::vector<NamedTensor>;

// Returns the `count` bytes at offset `at`, lowest first, as one number. The caller has checked the
// range.
constexpr std::uint64_t little_endian(Bytes bytes, std::size_t at, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = value << 8 | bytes[at + i];
  return value;
}

inline void append_little_endian(std::string& out, std::uint64_t value, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// Returns the whole file. Throws kIo with the system's reason when the file cannot be read, and
// with both sizes when the file is larger than the machine's memory.
CONVSCOPE_API std::vector<std::uint8_t> read_file(const std::string& path);

// Returns a text of at most `most_bytes` from a file or a pipe. For a longer text, throws kIo with
// both sizes before reading. Throws kIo with the system's reason when reading fails, or when no
// process opens the pipe for writing within two seconds.
CONVSCOPE_API std::string read_text(const std::string& path, std::size_t most_bytes);
// Does the same for an optional file. Returns nothing when the file cannot be read, is too long, or
// is not a regular file.
inline constexpr std::size_t kMaxTextBytes = std::size_t{256} << 20;
CONVSCOPE_API std::optional<std::string> text_if_there(const std::string& path,
                                                       std::size_t most_bytes = kMaxTextBytes);

}  // namespace convscope
