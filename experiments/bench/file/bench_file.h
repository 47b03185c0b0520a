// SPDX-License-Identifier: Apache-2.0
// bench_file.h: a result file that grows during a benchmark. Finished rows are written to
// "b.unfinished.json" at once, and "b.json" is written at the end. So b.json always has all cases,
// and an interrupted benchmark leaves an older b.json unchanged.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API BenchFile {
 public:
  // Opens `path` ("": writes no file). Throws an error of kind kIo when the file cannot be written.
  // From then on, a signal that ends the process also prints the name of the file with the finished
  // rows.
  explicit BenchFile(std::string path);
  ~BenchFile();
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;

  bool wanted() const { return !path_.empty(); }
  void keep(const std::string& text);  // the rows so far; not for a device or a pipe
  void finish(const std::string& text);

 private:
  std::string path_, unfinished_;
  bool kept_ = false;
};

// Returns "a/b.unfinished.json" for "a/b.json".
CONVSCOPE_API std::string unfinished_name(const std::string& path);

}  // namespace convscope
