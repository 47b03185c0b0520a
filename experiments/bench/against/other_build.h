// SPDX-License-Identifier: Apache-2.0
// other_build.h: another build of this project as a callable program, for timing two builds
// alternately.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct OtherBuild {
  std::string name;                // the argument that names the build
  std::vector<std::string> words;  // the first words of its command line
};

// Returns this program.
CONVSCOPE_API OtherBuild this_build();

// Returns the build at the path `given`, which is another convscope program or a libconvscope.so. A
// library runs in the program of the same build (bin/convscope next to the library's folder), or
// else in this program. In the latter case LD_LIBRARY_PATH is `scratch`, a folder with a link to
// the library, and the function checks which library the loader chooses. Throws an error of kind
// kUnavailable when `given` is neither a program nor a library, or cannot run.
CONVSCOPE_API OtherBuild find_other_build(const std::string& given, const std::string& scratch);

}  // namespace convscope
