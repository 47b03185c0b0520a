// SPDX-License-Identifier: Apache-2.0
// other_build.h: another build of this project as a callable program, for timing two builds
// alternately.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct OtherBuild {
  std::string name;                // as given
  std::vector<std::string> words;  // the first words of its command line
};

// Returns this program.
CONVSCOPE_API OtherBuild this_build();

// Returns the build that `given` names: another convscope program or another libconvscope.so. A
// library runs in the program that belongs to it (bin/convscope next to its folder), else in this
// program. For this program, LD_LIBRARY_PATH names `scratch`, which gets a link with the name that
// the loader looks for, and the loader's choice is checked. Throws an error of kind kUnavailable
// when `given` is neither or cannot run.
CONVSCOPE_API OtherBuild find_other_build(const std::string& given, const std::string& scratch);

}  // namespace convscope
