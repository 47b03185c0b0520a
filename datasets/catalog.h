// SPDX-License-Identifier: Apache-2.0
// catalog.h: the files of each data set, where they are published, and their checksums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// A file as published.
struct PublishedFile {
  std::string name;            // on the mirrors
  std::string content_sha256;  // of the unpacked content; "" if unknown
  std::string md5;             // of the file as published; "" if unknown
};

struct PublishedSet {
  std::string name;
  std::vector<std::string> mirrors;  // each file is at <mirror>/<name>
  std::vector<PublishedFile> files;
  // Names the members of a .tar.gz that are unpacked and kept instead of the archive. If it is
  // empty, the files are kept as they are.
  std::vector<std::string> members;
  std::vector<std::string> optional_members = {};
  // Sizes of the whole set, checked after unpacking. 0 = unknown.
  std::int64_t train_size = 0, test_size = 0;
};

// Returns the sets that can be fetched.
CONVSCOPE_API const std::vector<PublishedSet>& published_sets();
// Returns the set of this name. Throws kInvalid, with a list of the known names, if there is none.
CONVSCOPE_API const PublishedSet& published_set(const std::string& name);

}  // namespace convscope
