// SPDX-License-Identifier: Apache-2.0
// starter_plugin.h: the initial files of a new plug-in: the lesson of the direct convolution as a
// custom algorithm, a CMake file and a page with the commands to type.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct StarterFile {
  std::string name;  // in the folder
  std::string text;
};
// Returns the files. `package`: the folder of the CMake package; "": CMake has to find it.
CONVSCOPE_API std::vector<StarterFile> starter_plugin(const std::string& name,
                                                      const std::string& package);

// Returns the folder of the running program's CMake package, in an installation or a build folder;
// "": there is none.
CONVSCOPE_API std::string package_of_program();

// Returns "" or what was expected of the name of a new algorithm.
CONVSCOPE_API std::string problem_of_new_name(const std::string& name);

}  // namespace convscope
