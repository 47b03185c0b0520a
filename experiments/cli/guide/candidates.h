// SPDX-License-Identifier: Apache-2.0
// candidates.h: shell completion of the last word of a command line, from the declared commands and
// options, the shipped configs and the config keys.
#pragma once

#include <string>
#include <vector>

#include "experiments/cli/command_line.h"
#include "framework/export.h"

namespace convscope {

struct Candidates {
  struct One {
    std::string text, about;
  };
  std::vector<One> words;  // all begin with the last word; no blank follows a final '='
  bool files = false;      // file and folder names fit too
  bool folders = false;    // folder names fit too
};

// Returns the completions. `words` follow the program's name; the last one, which is being typed,
// may be empty.
CONVSCOPE_API Candidates candidates_for(const CommandLine& program,
                                        const std::vector<std::string>& words);

}  // namespace convscope
