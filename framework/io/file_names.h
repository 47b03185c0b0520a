// SPDX-License-Identifier: Apache-2.0
// file_names.h: tells which files of a folder to skip, and returns extensions in lower case.
#pragma once

#include <filesystem>
#include <string>

namespace convscope {

// Returns true for names that begin with '.'. Readers of folders skip such files, because they
// belong to editors, notebooks and file systems.
inline bool is_hidden(const std::filesystem::path& path) {
  return path.filename().string().starts_with('.');
}

// Returns ".ply" for "a/scan.PLY": file systems and scanners also write extensions in capitals.
inline std::string lower_extension(const std::filesystem::path& path) {
  std::string out = path.extension().string();
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

}  // namespace convscope
