// SPDX-License-Identifier: Apache-2.0
// fetch.h: gets a published data set from its mirrors, and checks what lies on the disk.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "datasets/catalog.h"

namespace convscope {

struct FetchEvents {
  std::function<void(const std::string& line)> say;  // one line about a file or a failed attempt
  std::function<void(const std::string& file, std::int64_t done, std::int64_t total)> progress;
};

// Where `data fetch SET --root ROOT` puts the files: ROOT/SET, or ROOT itself when that is its name
// or it holds files of the set; without a root $CONVSCOPE_DATA/SET or ./data/SET.
CONVSCOPE_API std::string fetch_folder(const PublishedSet& set, const std::string& root);

// Files that are there and whole are left alone. A file appears under its name only after its sum
// fitted. When no mirror gives a file: an error of kind kData with the reason of each mirror.
CONVSCOPE_API void fetch(const PublishedSet& set, const std::string& folder,
                         const FetchEvents& events);

struct FileReport {
  std::string file;
  std::int64_t bytes = 0;
  bool sound = false;
  std::string remark;  // which sum fitted, or what is wrong
};
// One line for each file; never throws for what it finds in the folder.
CONVSCOPE_API std::vector<FileReport> check_files(const PublishedSet& set,
                                                  const std::string& folder);

}  // namespace convscope
