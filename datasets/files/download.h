// SPDX-License-Identifier: Apache-2.0
// download.h: one file over HTTP, resumed where an earlier attempt ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Called now and then; total is 0 while unknown. Sizes in bytes.
using DownloadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Loads `url` into `part`, appending when the file is there and the server can do ranges. Returns
// "" when the file is complete, else why not (the part is kept). Throws an Error of kind kIo when
// the file cannot be written.
CONVSCOPE_API std::string download(const std::string& url, const std::string& part,
                                   const DownloadProgress& progress);

}  // namespace convscope
