// SPDX-License-Identifier: Apache-2.0
// plugin_cards.h: which cards came out of plug-ins. What `measure` found with them is remembered
// apart, so that it says nothing about a program without them, or with another build of them.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

struct PluginCard {
  std::string file;  // absolute
  std::string hash;  // of its bytes
};
CONVSCOPE_API void note_plugin_card(std::string_view operation, std::string_view card,
                                    const PluginCard& from);
// Null: it is one of ours.
CONVSCOPE_API const PluginCard* plugin_of_card(std::string_view operation, std::string_view card);

}  // namespace convscope
