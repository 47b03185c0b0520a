// SPDX-License-Identifier: Apache-2.0
// atomic_file.h: a file that appears under its name complete, or not at all.
//
// The bytes go to a nameless file, or, where the file system has none, to a temporary name in the
// same folder. commit() flushes them to the disk and renames. So a crash or a full disk never
// leaves a partial file under the final name, and an older file does not change. A later write
// removes temporary names left by killed processes. The new file has the older file's access
// rights, and a link to a file remains a link.
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
  // Throws only errors of kind kIo, with the path and the system's reason.
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

// Throws, as writing would, when no file can be created in the folder of `path`. Does not change an
// existing file.
CONVSCOPE_API void check_writable(const std::string& path);

// Does all three steps.
CONVSCOPE_API void write_file(const std::string& path, std::string_view content);

}  // namespace convscope
