// SPDX-License-Identifier: Apache-2.0
// tar_files.h: a tar archive in memory.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace convscope::testing {

inline std::string tar_entry(const std::string& name, const std::string& content, char type = '0') {
  char header[512] = {};
  std::snprintf(header, 100, "%s", name.c_str());
  std::snprintf(header + 100, 8, "0000644");
  std::snprintf(header + 124, 12, "%011lo", static_cast<unsigned long>(content.size()));
  std::memset(header + 148, ' ', 8);
  header[156] = type;
  std::memcpy(header + 257, "ustar\00000", 8);
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(header + 148, 8, "%06o", sum);
  std::string out(header, sizeof header);
  out += content;
  out.append((512 - content.size() % 512) % 512, '\0');
  return out;
}

inline std::string tar_of(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, content] : files) out += tar_entry(name, content);
  return out + std::string(1024, '\0');
}

}  // namespace convscope::testing
