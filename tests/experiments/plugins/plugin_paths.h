// SPDX-License-Identifier: Apache-2.0
// plugin_paths.h: the paths of the tests' plug-ins (modules/).
#pragma once

#include <string>

namespace convscope::testing {

inline const std::string kPlanted =
    std::string(CONVSCOPE_BINARY_DIR) + "/test_plugins/planted/planted_plugin.so";
inline const std::string kOdd =
    std::string(CONVSCOPE_BINARY_DIR) + "/test_plugins/odd/odd_plugin.so";
inline const std::string kCheat =
    std::string(CONVSCOPE_BINARY_DIR) + "/test_plugins/cheat/cheat_plugin.so";
inline const std::string kC = std::string(CONVSCOPE_BINARY_DIR) + "/test_plugins/c/c_plugin.so";

}  // namespace convscope::testing
