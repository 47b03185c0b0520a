// SPDX-License-Identifier: Apache-2.0
// catalog.h: which files a data set is made of, where they are published, and how to know that a
// copy is the real one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

// One file as it is published.
struct PublishedFile {
  std::string name;            // on the mirrors
  std::string content_sha256;  // of the unpacked content; "" when none is known
  std::string md5;             // of the file as published; "" when none is known
};

struct PublishedSet {
  std::string name;
  std::vector<std::string> mirrors;  // each file lies at <mirror>/<name>
  std::vector<PublishedFile> files;
  // A .tar.gz whose members are kept instead of it; empty: the files are kept as they are.
  std::vector<std::string> members;
  std::vector<std::string> optional_members = {};
  // What the whole holds: checked after unpacking. 0 = unknown.
  std::int64_t train_size = 0, test_size = 0;
};

// The sets that can be fetched.
CONVSCOPE_API const std::vector<PublishedSet>& published_sets();
// An error of kind kInvalid with the choices when there is no such set.
CONVSCOPE_API const PublishedSet& published_set(const std::string& name);

}  // namespace convscope
