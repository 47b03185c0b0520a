// SPDX-License-Identifier: Apache-2.0
// bench_file.h: a file of results that grows while a benchmark works. What is measured so far is in
// "b.unfinished.json"; "b.json" is written once, when all is measured. So an older b.json stays
// whole, and a reader that finds b.json has all cases.
#pragma once

#include <string>

#include "framework/export.h"

namespace convscope {

class CONVSCOPE_API BenchFile {
 public:
  // "": nothing is written. An error of kind kIo when `path` cannot be written. From here on a
  // signal that ends the process says where the rows so far are.
  explicit BenchFile(std::string path);
  ~BenchFile();
  BenchFile(const BenchFile&) = delete;
  BenchFile& operator=(const BenchFile&) = delete;

  bool wanted() const { return !path_.empty(); }
  void keep(const std::string& text);  // so far; not of a device or a pipe
  void finish(const std::string& text);

 private:
  std::string path_, unfinished_;
  bool kept_ = false;
};

// "a/b.json" -> "a/b.unfinished.json"
CONVSCOPE_API std::string unfinished_name(const std::string& path);

}  // namespace convscope
