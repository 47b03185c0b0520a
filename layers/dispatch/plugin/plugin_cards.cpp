// SPDX-License-Identifier: Apache-2.0
// plugin_cards.cpp: records which algorithms come from plug-ins.
#include "layers/dispatch/plugin/plugin_cards.h"

#include <map>
#include <utility>

namespace convscope {
namespace {

using Key = std::pair<std::string, std::string>;

std::map<Key, PluginCard>& table() {
  static std::map<Key, PluginCard> cards;
  return cards;
}

}  // namespace

void note_plugin_card(std::string_view operation, std::string_view card, const PluginCard& from) {
  table()[Key(operation, card)] = from;
}

const PluginCard* plugin_of_card(std::string_view operation, std::string_view card) {
  const auto found = table().find(Key(operation, card));
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace convscope
