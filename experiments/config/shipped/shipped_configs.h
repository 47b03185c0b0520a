// SPDX-License-Identifier: Apache-2.0
// shipped_configs.h: the configs that come with the program, found by their names wherever one
// stands: `convscope run quickstart`.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct ShippedConfig {
  std::string name;   // "quickstart", of quickstart.yaml
  std::string path;   // where it lies
  std::string about;  // the first sentence of its first comment
};
// By name. Folders, a name of an earlier one wins: experiments/configs where one stands, that of
// the installation, that of the source tree which the program was built from.
CONVSCOPE_API std::vector<ShippedConfig> shipped_configs();

// The file that `word` means: a path, the name of a file in the current folder with or without
// .yaml, or the name of a shipped config. A path with a folder in it is given back as it is. Throws
// Error of kind kConfig when a bare name is none of these; the sentence is ready to print.
CONVSCOPE_API std::string find_config(const std::string& word);

// The folder of the problems that come with the program, experiments/shapes of the source tree. An
// error of kind kIo where it is gone.
CONVSCOPE_API std::string shipped_shapes();

// The file of problems that `word` means: a path; or, where no such file is, the name of one that
// comes with the program, with or without .txt, also as experiments/shapes/NAME.txt, which is how
// the documents call it. A word that is none of these is given back: the reader says what is wrong.
CONVSCOPE_API std::string find_shapes(const std::string& word);

}  // namespace convscope
