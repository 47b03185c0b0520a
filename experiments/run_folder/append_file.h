// SPDX-License-Identifier: Apache-2.0
// append_file.h: a file of lines that only grows (metrics.jsonl, epochs.csv). Each line is passed
// to the system at once, so a killed process loses nothing; appending allocates no memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/check.h"

namespace convscope {

// Writes all of `text`, or fails with kIo and names `path` and the system's reason.
CONVSCOPE_API void write_all(int descriptor, std::string_view text, const std::string& path);

// Returns the length in bytes of a CSV file's header and of its rows up to this step. A row begins
// with its step. A row without line end is incomplete and does not count.
CONVSCOPE_API std::int64_t bytes_until_step(const std::string& path, std::int64_t step);

class CONVSCOPE_API AppendFile {
 public:
  // Keeps the first `keep_bytes` of an existing file and drops the rest; 0 starts a new file. A
  // resumed run writes the rows after its checkpoint again, so the old rows must go.
  AppendFile(std::string path, std::int64_t keep_bytes);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view line);  // the caller adds the newline
  std::int64_t size_bytes() const { return size_bytes_; }
  void flush_to_disk();  // before a checkpoint that counts these bytes

 private:
  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_bytes_ = 0;
};

}  // namespace convscope
