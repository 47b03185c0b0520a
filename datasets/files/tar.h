// SPDX-License-Identifier: Apache-2.0
// tar.h: reads the regular files of a tar archive from a stream, for the only data set that is
// published as an archive. The reader writes no files and drops folders from names, so an archive
// cannot choose where its files are stored.
// Format: POSIX.1-1988 ustar.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Writes up to `bytes` bytes to `to` and returns their number, which is smaller only at the end of
// the stream (as Inflater::read does).
using ByteSource = std::function<std::size_t(std::uint8_t* to, std::size_t bytes)>;

// Calls on_file(name without folders, content) for each regular file of at most `largest` bytes.
// Throws kData, with `name`, for a larger file and for a truncated or damaged archive.
CONVSCOPE_API void read_tar(
    const ByteSource& source, const std::string& name, std::uint64_t largest,
    const std::function<void(const std::string&, std::vector<std::uint8_t>)>& on_file);

}  // namespace convscope
