// SPDX-License-Identifier: Apache-2.0
// cache_file.h: reads and updates a small text file in the cache folder, which several processes
// share.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

// The content of such a file.
using CacheText = std::optional<std::string>;

// Returns the text of a cache file, or nothing when there is no such file. When `path` cannot be
// read (a folder, a pipe), prints a warning and returns nothing.
CONVSCOPE_API CacheText read_cache_file(const std::string& path);

// Replaces a file's text by change(text). A lock on <path>.lock serialises updates, so no update is
// lost. After waiting ten seconds for the lock, the function proceeds without it. If the file
// cannot be written, prints a warning that begins with `what`. Does nothing for an empty path,
// which means that there is no cache folder.
CONVSCOPE_API void change_cache_file(const std::string& path, const std::string& what,
                                     const std::function<std::string(const CacheText&)>& change);

}  // namespace convscope
