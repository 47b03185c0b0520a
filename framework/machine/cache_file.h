// SPDX-License-Identifier: Apache-2.0
// cache_file.h: a small text file in the cache folder that several processes update.
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

// Replaces a file's text by change(text). A lock on <path>.lock serialises updates, so no addition
// is lost. After waiting for ten seconds, the function proceeds without the lock. If the file
// cannot be written, prints a warning that begins with `what`. Does nothing for an empty path
// (there is no cache folder).
CONVSCOPE_API void change_cache_file(const std::string& path, const std::string& what,
                                     const std::function<std::string(const CacheText&)>& change);

}  // namespace convscope
