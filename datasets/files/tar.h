// SPDX-License-Identifier: Apache-2.0
// tar.h: reads the regular files of a tar archive from a stream, for the one data set that comes as
// one. Nothing is written here, and folders in names are dropped: an archive cannot choose where
// its files go.
// Format: POSIX.1-1988 ustar.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Fills up to `bytes` bytes; fewer only at the end (Inflater::read fits).
using ByteSource = std::function<std::size_t(std::uint8_t* to, std::size_t bytes)>;

// Calls on_file(name without folders, content) for each regular file of at most `largest` bytes; a
// larger one is an error, as is an archive that is cut or damaged (kind kData, with `name`).
CONVSCOPE_API void read_tar(
    const ByteSource& source, const std::string& name, std::uint64_t largest,
    const std::function<void(const std::string&, std::vector<std::uint8_t>)>& on_file);

}  // namespace convscope
