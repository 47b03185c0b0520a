// SPDX-License-Identifier: Apache-2.0
// candidates.h: what a shell may complete the last word of a command line to, from the commands and
// options that are declared, the shipped configs and the keys of configs.
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
  std::vector<One> words;  // all begin with the last word; one that ends in '=' goes on
  bool files = false;      // names of files and folders fit as well
  bool folders = false;    // names of folders do
};

// `words`: those behind the program's name; the last one is being typed and may be empty.
CONVSCOPE_API Candidates candidates_for(const CommandLine& program,
                                        const std::vector<std::string>& words);

}  // namespace convscope
