// SPDX-License-Identifier: Apache-2.0
// shipped_configs.h: the configs of the program, which are found by name in any current folder:
// `convscope run quickstart`.
#pragma once

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

// Returns the file that `word` names: a path, a file in the current folder with or without .yaml,
// or a shipped config. A path with a folder is returned unchanged. Throws Error of kind kConfig
// when a bare name matches nothing; the error's sentence is ready to print.
CONVSCOPE_API std::string find_config(const std::string& word);

// Returns the folder of the shipped lists of problems, experiments/shapes of the source tree. Fails
// with kIo when it is missing.
CONVSCOPE_API std::string shipped_shapes();

// Returns the list of problems that `word` names: a path, or else a shipped file with or without
// .txt, also written as experiments/shapes/NAME.txt. Any other word is returned unchanged, and the
// function that reads the file reports the error.
CONVSCOPE_API std::string find_shapes(const std::string& word);

}  // namespace convscope
