// SPDX-License-Identifier: Apache-2.0
// atomic_file.h: a file that appears under its name whole, or not at all.
//
// The bytes go to a file without a name, or, where the file system has none, to a temporary name in
// the same folder; commit() flushes them to the disk and renames. So a crash or a full disk never
// leaves half a file under the real name, and an older file stays as it was. A temporary name that
// a killed process has left is removed by a later write. The new file has the access rights of the
// older one; a link to a file stays one.
//   AtomicFile file("run/summary.json");
//   file.write(text);
//   file.commit();
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API AtomicFile {
 public:
  // Every error here is of kind kIo and names the path and the system's reason.
  explicit AtomicFile(std::string path);
  ~AtomicFile();  // without commit(): removes the temporary file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  [[noreturn]] void fail_writing(int error);
  void discard() noexcept;

  std::string path_;
  std::string temporary_;  // empty when path_ is a device or a pipe, which is written directly
  int descriptor_ = -1;
};

// Throws, as writing would, when no file can be made in the folder of `path`. What stands there
// stays as it is.
CONVSCOPE_API void check_writable(const std::string& path);

// All three steps in one.
CONVSCOPE_API void write_file(const std::string& path, std::string_view content);

}  // namespace convscope
