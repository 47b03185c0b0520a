// SPDX-License-Identifier: Apache-2.0
// conv2d_plugin.h: makes convolution algorithms and ladders of the C structs of a plug-in.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/ladder.h"
#include "layers/plugin/plugin.h"

namespace convscope {

struct Conv2dPlugin {
  std::string source;
  std::vector<Conv2dAlgorithm> algorithms;
  std::vector<Conv2dLadder> ladders;
};

// Returns what a plug-in holds. Its names may still be null or wrong (algorithm_check.h). Refuses
// `file` as in plugin_file.h if a struct has an unknown size, or if the process has more algorithms
// of plug-ins than fit.
CONVSCOPE_API Conv2dPlugin conv2d_plugin(std::string_view file, const ConvscopePlugin& plugin);

// Returns the algorithm of one struct. Throws an error if a process has too many of them.
CONVSCOPE_API Conv2dAlgorithm conv2d_plugin_algorithm(const ConvscopeConv2dAlgorithm& algorithm);

}  // namespace convscope
