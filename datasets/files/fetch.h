// SPDX-License-Identifier: Apache-2.0
// fetch.h: fetches a published data set from its mirrors, and checks the files on the disk.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "datasets/catalog.h"

namespace convscope {

struct FetchEvents {
  std::function<void(const std::string& line)> say;  // receives a line per file or failed attempt
  std::function<void(const std::string& file, std::int64_t done, std::int64_t total)> progress;
};

// Returns the folder that `data fetch SET --root ROOT` uses. This is ROOT itself if its name is SET
// or it contains files of the set, else ROOT/SET. Without a root, it is $CONVSCOPE_DATA/SET or
// ./data/SET.
CONVSCOPE_API std::string fetch_folder(const PublishedSet& set, const std::string& root);

// Fetches missing or incomplete files. A file gets its name only after its checksum has matched.
// Throws kData with each mirror's error when no mirror provides a file.
CONVSCOPE_API void fetch(const PublishedSet& set, const std::string& folder,
                         const FetchEvents& events);

struct FileReport {
  std::string file;
  std::int64_t bytes = 0;
  bool sound = false;
  std::string remark;  // the matching checksum, or the problem
};
// Returns one entry per file; never throws because of the folder's content.
CONVSCOPE_API std::vector<FileReport> check_files(const PublishedSet& set,
                                                  const std::string& folder);

}  // namespace convscope
