// SPDX-License-Identifier: Apache-2.0
// run_file.h: size limits of a run's files. The program writes no larger files, so readers leave a
// larger file out, with a message.
#pragma once

#include <cstddef>
#include <string_view>

namespace convscope {

// Returns the limit in bytes by the name's extension. The parser also refuses a config of more than
// 256 KiB.
constexpr std::size_t most_bytes_of_run_file(std::string_view path) {
  constexpr std::size_t kMebi = std::size_t{1} << 20;
  return path.ends_with(".yaml")    ? kMebi / 4
         : path.ends_with(".json")  ? 4 * kMebi  // for a few thousand rows
         : path.ends_with(".jsonl") ? 1024 * kMebi
                                    : 64 * kMebi;  // .csv, .txt: a hundred bytes per row
}

}  // namespace convscope
