// SPDX-License-Identifier: Apache-2.0
// download.h: downloads a file over HTTP and resumes interrupted downloads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/export.h"

namespace convscope {

// Called periodically; total is 0 while unknown. Sizes in bytes.
using DownloadProgress = std::function<void(std::int64_t done, std::int64_t total)>;

// Downloads `url` into the file `part`. Appends when the file exists and the server supports
// ranges. Returns "" when the download is complete; otherwise keeps the file and returns the
// reason. Throws kIo when the file cannot be written.
CONVSCOPE_API std::string download(const std::string& url, const std::string& part,
                                   const DownloadProgress& progress);

}  // namespace convscope
