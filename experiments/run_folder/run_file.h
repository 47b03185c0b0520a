// SPDX-License-Identifier: Apache-2.0
// run_file.h: how long a file of a run may be. A longer one is not what the program wrote: its
// readers leave it out, and say so.
#pragma once

#include <cstddef>
#include <string_view>

namespace convscope {

// Bytes, by the end of the name. A config of more than 256 KiB is refused by its parser, too.
constexpr std::size_t most_bytes_of_run_file(std::string_view path) {
  constexpr std::size_t kMebi = std::size_t{1} << 20;
  return path.ends_with(".yaml")    ? kMebi / 4
         : path.ends_with(".json")  ? 4 * kMebi  // a few thousand
         : path.ends_with(".jsonl") ? 1024 * kMebi
                                    : 64 * kMebi;  // .csv, .txt: a hundred bytes for each row
}

}  // namespace convscope
