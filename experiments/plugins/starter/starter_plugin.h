// SPDX-License-Identifier: Apache-2.0
// starter_plugin.h: the files of a plug-in to begin with: the lesson of the direct convolution as a
// card of one's own, a CMake file and a page with the commands to type.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct StarterFile {
  std::string name;  // in the folder
  std::string text;
};
// `package`: the folder of the CMake package; "": CMake has to find it.
CONVSCOPE_API std::vector<StarterFile> starter_plugin(const std::string& name,
                                                      const std::string& package);

// Where the program that runs has its CMake package: of an installation, or of a build folder; "":
// nowhere.
CONVSCOPE_API std::string package_of_program();

// "" or what was expected of the name of a new algorithm.
CONVSCOPE_API std::string problem_of_new_name(const std::string& name);

}  // namespace convscope
