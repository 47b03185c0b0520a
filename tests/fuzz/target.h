// SPDX-License-Identifier: Apache-2.0
// target.h: defines a fuzz target: a parser of untrusted files as a function of bytes, and valid
// inputs from which a fuzzer starts.
#pragma once

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "framework/check.h"
#include "framework/io/bytes.h"
#include "tests/support/temporary_folder.h"

namespace convscope::testing {

struct FuzzTarget {
  std::string_view name;
  void (*run)(Bytes bytes);
  std::vector<std::string> (*seeds)();
};

// Runs one input. An Error is an accepted result; any other exception is a finding.
inline void run_target(const FuzzTarget& target, Bytes bytes) {
  try {
    target.run(bytes);
  } catch (const Error&) {
  }
}

// Returns one target by name, for a libFuzzer program, which needs no
// other target (see all_targets.cpp).
const FuzzTarget& fuzz_target_named(std::string_view name);

inline std::string text_of(const std::vector<std::uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
inline std::string_view view_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class Write>
std::string written(Write&& write) {
  const TemporaryFolder folder;
  write(folder / "file");
  return text_of(read_file(folder / "file"));
}

// Writes a file without the flush to disk that the library's writers make.
inline void put_file(const std::string& path, std::string_view content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace convscope::testing
