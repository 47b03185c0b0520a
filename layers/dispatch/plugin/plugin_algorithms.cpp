// SPDX-License-Identifier: Apache-2.0
// plugin_algorithms.cpp: records which algorithms come from plug-ins.
#include "layers/dispatch/plugin/plugin_algorithms.h"

#include <map>
#include <utility>

namespace convscope {
namespace {

using Key = std::pair<std::string, std::string>;

std::map<Key, PluginAlgorithm>& table() {
  static std::map<Key, PluginAlgorithm> algorithms;
  return algorithms;
}

}  // namespace

void note_plugin_algorithm(std::string_view operation, std::string_view algorithm,
                           const PluginAlgorithm& from) {
  table()[Key(operation, algorithm)] = from;
}

const PluginAlgorithm* plugin_of_algorithm(std::string_view operation, std::string_view algorithm) {
  const auto found = table().find(Key(operation, algorithm));
  return found == table().end() ? nullptr : &found->second;
}

}  // namespace convscope
