// SPDX-License-Identifier: Apache-2.0
// file_start.h: the beginning of a file, and its lines one after the other: for files of any size.
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
// The first bytes of a regular file, at most `most_bytes`; errors as those of read_file().
CONVSCOPE_API FileStart read_start(const std::string& path, std::size_t most_bytes);

// Calls `take` for each line of a regular file from byte `from` on, without its end; `whole` is
// false for a last line that has none: it may still be written. Holds one line at a time: one of
// more than kMostLineBytes is passed over. Returns the byte behind the last whole line; `from`
// where the file cannot be read.
inline constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;
CONVSCOPE_API std::uint64_t for_each_line(
    const std::string& path, std::uint64_t from,
    const std::function<void(std::string_view line, bool whole)>& take);

}  // namespace convscope
