// SPDX-License-Identifier: Apache-2.0
// cache_file.h: a small text file in the cache folder to which several processes add.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "framework/export.h"

namespace convscope {

// What stands in such a file.
using CacheText = std::optional<std::string>;

// Nothing when there is no such file. One that cannot be read (a folder, a pipe) is a warning and
// nothing.
CONVSCOPE_API CacheText read_cache_file(const std::string& path);

// Replaces the text of a file by change(text). Others who do the same wait meanwhile (a lock on
// <path>.lock), so nothing that anybody added is lost; after ten seconds of waiting it is done all
// the same. A file that cannot be written is a warning that begins with `what`. An empty path,
// where there is no cache folder: does nothing.
CONVSCOPE_API void change_cache_file(const std::string& path, const std::string& what,
                                     const std::function<std::string(const CacheText&)>& change);

}  // namespace convscope
