// SPDX-License-Identifier: Apache-2.0
// plugin_algorithms.h: records which algorithms come from plug-ins. `measure` stores results with
// plug-ins separately, so they do not affect programs without the plug-in or with another build of
// the plug-in.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

struct PluginAlgorithm {
  std::string file;  // absolute
  std::string hash;  // of the file's bytes
};
CONVSCOPE_API void note_plugin_algorithm(std::string_view operation, std::string_view algorithm,
                                         const PluginAlgorithm& from);
// Returns null if the algorithm is built in.
CONVSCOPE_API const PluginAlgorithm* plugin_of_algorithm(std::string_view operation,
                                                         std::string_view algorithm);

}  // namespace convscope
