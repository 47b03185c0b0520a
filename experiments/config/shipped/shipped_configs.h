// SPDX-License-Identifier: Apache-2.0
// shipped_configs.h: the configs of the program, which are found by name in any current folder:
// `convscope run quickstart`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct ShippedConfig {
  std::string name;   // "quickstart" for quickstart.yaml
  std::string path;   // path of the file
  std::string about;  // the first sentence of its first comment
};
// Returns the configs by name. The folders are searched in this order, and the first match wins:
// experiments/configs of the current folder, the installation, the source tree of the build.
CONVSCOPE_API std::vector<ShippedConfig> shipped_configs();

// Returns true for everything except folders and missing paths.
bool is_file(const std::filesystem::path& path);

// Returns the path of the config that `word` names. `word` is a path, the name of a file in the
// current folder with or without .yaml, or the name of a shipped config. Returns `word` itself if
// it contains a '/', even if there is no such file. Throws Error of kind kConfig when a name
// matches nothing; the error's sentence is ready to print.
CONVSCOPE_API std::string find_config(const std::string& word);

// Returns the folder of the shipped lists of problems, experiments/shapes of the source tree. Fails
// with kIo when it is missing.
CONVSCOPE_API std::string shipped_shapes();

// Returns the path of the list of problems that `word` names. `word` is the path of an existing
// file, or names a shipped list by NAME, NAME.txt, experiments/shapes/NAME or
// experiments/shapes/NAME.txt. If there is no such file, returns `word`; the function that opens it
// then reports the error.
CONVSCOPE_API std::string find_shapes(const std::string& word);

}  // namespace convscope
