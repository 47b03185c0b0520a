// SPDX-License-Identifier: Apache-2.0
// other_build.h: another build of this project, as a program that can be called: for timing this
// one and that one in turns.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct OtherBuild {
  std::string name;                // as it was given
  std::vector<std::string> words;  // what its command line begins with
};

// This program.
CONVSCOPE_API OtherBuild this_build();

// `given` is another convscope program, or another libconvscope.so. A library runs in the program
// that belongs to it (bin/convscope beside its folder), where there is one; else in this program,
// whose loader is told to take that library (LD_LIBRARY_PATH names `scratch`, which gets a link
// under the name that the program asks for). That the loader has taken it is checked. An error of
// kind kUnavailable when `given` is neither or cannot run.
CONVSCOPE_API OtherBuild find_other_build(const std::string& given, const std::string& scratch);

}  // namespace convscope
