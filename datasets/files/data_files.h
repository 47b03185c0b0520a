// SPDX-License-Identifier: Apache-2.0
// data_files.h: finds the files of a data set.
//
// With a root, the functions search only `root` and `root`/<set>. Without a root, they search
// $CONVSCOPE_DATA/<set>, then ./data/<set>. For CIFAR-10, they also search the subfolder
// cifar-10-batches-bin of these folders.
#pragma once

#include <string>
#include <vector>

#include "framework/options.h"

namespace convscope {

CONVSCOPE_API std::vector<std::string> data_folders(const std::string& set,
                                                    const std::string& root);

// Returns the first folder with a file that has one of these names. Without such a folder, throws
// kData with the paths tried and the command that fetches the set.
CONVSCOPE_API std::string find_data_folder(const std::string& set, const std::string& root,
                                           const std::vector<std::string>& spellings);

// Returns the path of the first of these names in `folder`; throws the same error if none exists.
CONVSCOPE_API std::string find_data_file(const std::string& set, const std::string& folder,
                                         const std::vector<std::string>& spellings);

// Returns the option `root`. The second function, root_of(), returns the value of this option, or
// "" if it is not set.
CONVSCOPE_API OptionField root_field();
CONVSCOPE_API std::string root_of(const Options& options);

}  // namespace convscope
