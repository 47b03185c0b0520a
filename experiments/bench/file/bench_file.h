// SPDX-License-Identifier: Apache-2.0
// bench_file.h: a result file that grows during a benchmark. Finished rows are in
// "b.unfinished.json"; "b.json" is written once, at the end. So an older b.json stays complete, and
// a b.json always has all cases.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API BenchFile {
 public:
  // Opens `path`; "": nothing is written. Throws an error of kind kIo when it cannot be written.
  // From here on, a signal that ends the process prints where the finished rows are.
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
