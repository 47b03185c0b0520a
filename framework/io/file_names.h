// SPDX-License-Identifier: Apache-2.0
// file_names.h: which entries of a folder its readers look at.
#pragma once

#include <filesystem>
#include <string>

namespace convscope {

// Names that begin with '.' belong to editors, notebooks and file systems: readers of folders pass
// them over.
inline bool is_hidden(const std::filesystem::path& path) {
  return path.filename().string().starts_with('.');
}

// ".ply" of "a/scan.PLY": file systems and scanners write endings in capitals, too.
inline std::string lower_extension(const std::filesystem::path& path) {
  std::string out = path.extension().string();
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

}  // namespace convscope
