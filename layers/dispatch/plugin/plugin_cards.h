// SPDX-License-Identifier: Apache-2.0
// plugin_cards.h: records which algorithms come from plug-ins. `measure` stores its results for
// them separately, so they do not affect programs without the plug-in or with another build of it.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

struct PluginCard {
  std::string file;  // absolute
  std::string hash;  // of the file's bytes
};
CONVSCOPE_API void note_plugin_card(std::string_view operation, std::string_view card,
                                    const PluginCard& from);
// Returns null if the algorithm is built in.
CONVSCOPE_API const PluginCard* plugin_of_card(std::string_view operation, std::string_view card);

}  // namespace convscope
