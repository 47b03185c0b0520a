// SPDX-License-Identifier: Apache-2.0
// output_place.cpp: checks output paths before the work that produces the output.
#include "framework/io/output_place.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "framework/check.h"
#include "framework/io/atomic_file.h"

namespace convscope {

namespace fs = std::filesystem;

void check_output_files(std::initializer_list<std::string> paths) {
  for (const std::string& path : paths) {
    if (!path.empty()) check_writable(path);
  }
}

void check_output_folder(const std::string& path) {
  std::error_code error;
  fs::path there = fs::absolute(path, error);
  while (!fs::exists(there, error) && there != there.parent_path()) there = there.parent_path();
  int why = 0;
  if (!fs::is_directory(there, error)) {
    why = ENOTDIR;
  } else if (::access(there.c_str(), W_OK | X_OK) != 0) {
    why = errno;
  }
  if (why == 0) return;
  fail(ErrorKind::kIo, "write",
       cat("expected a folder that can be written, because results go to ", path, ", got ",
           there.string(), ": ", std::strerror(why)));
}

}  // namespace convscope
