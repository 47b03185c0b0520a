// SPDX-License-Identifier: Apache-2.0
// file_start.h: reads the beginning of a file, or a file of any size line by line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct FileStart {
  std::uint64_t size = 0;  // of the whole file
  std::vector<std::uint8_t> bytes = {};
};
// Returns the first bytes of a regular file, at most `most_bytes`. Throws as read_file() does.
CONVSCOPE_API FileStart read_start(const std::string& path, std::size_t most_bytes);

// Calls `take` with each line of a regular file from byte `from`, without the line end. For a last
// line without a line end, `whole` is false, because a program may still be writing the line. Holds
// one line at a time in memory, and skips lines longer than kMaxLineBytes. Returns the offset after
// the last whole line, or `from` when the file cannot be read.
inline constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;
CONVSCOPE_API std::uint64_t for_each_line(
    const std::string& path, std::uint64_t from,
    const std::function<void(std::string_view line, bool whole)>& take);

}  // namespace convscope
