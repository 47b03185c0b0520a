// SPDX-License-Identifier: Apache-2.0
// data_files.h: where the files of a data set lie.
//
// Searched: `root` and `root`/<set> when a root is given, and nowhere else then; otherwise
// $CONVSCOPE_DATA/<set>, then ./data/<set>. For CIFAR-10 also in cifar-10-batches-bin below these.
#pragma once

#include <string>
#include <vector>

#include "framework/options.h"

namespace convscope {

CONVSCOPE_API std::vector<std::string> data_folders(const std::string& set,
                                                    const std::string& root);

// The first folder that holds a file with one of these names. When there is none: an error of kind
// kData with the paths tried and the command that fetches the set.
CONVSCOPE_API std::string find_data_folder(const std::string& set, const std::string& root,
                                           const std::vector<std::string>& spellings);

// Path of the file with the first of these names that exists in `folder`; same error when none.
CONVSCOPE_API std::string find_data_file(const std::string& set, const std::string& folder,
                                         const std::vector<std::string>& spellings);

// The option `root`, and its value or "".
CONVSCOPE_API OptionField root_field();
CONVSCOPE_API std::string root_of(const Options& options);

}  // namespace convscope
