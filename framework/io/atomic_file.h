// SPDX-License-Identifier: Apache-2.0
// atomic_file.h: writes a file that appears under its final name only when it is complete.
//
// The bytes go to a nameless file. If the file system has no such files, they go to a file with a
// temporary name in the same folder. commit() flushes the bytes to the disk and renames the file.
// So a crash or a full disk never leaves a partial file under the final name, and an older file
// does not change. A later write removes temporary files of killed processes. The new file has the
// older file's access rights, and a link to a file remains a link.
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
  std::string temporary_;  // empty if path_ is a device or pipe (written directly)
  int descriptor_ = -1;
};

// Throws the error of writing if no file can be created in the folder of `path`. Does not change an
// existing file.
CONVSCOPE_API void check_writable(const std::string& path);

// Does all three steps.
CONVSCOPE_API void write_file(const std::string& path, std::string_view content);

}  // namespace convscope
