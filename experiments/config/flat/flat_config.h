// SPDX-License-Identifier: Apache-2.0
// flat_config.h: the values of a config by their dotted keys, for tables: "optim.lr" -> 0.05.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options.h"

namespace convscope {

// A list of values is one text, "[6, 16]"; the maps in a list are numbered: "layers.0.type".
using FlatConfig = std::map<std::string, OptionValue>;

// Read with the bounds of the config loader, but without its tables: the keys of another version
// are there too. Throws Error of kind kConfig for a text that is no YAML.
CONVSCOPE_API FlatConfig flat_config(std::string_view yaml, std::string_view file_name);

// "optim.lr", "quant.w_bits", ...: the keys that a config may have, whatever it says. Keys of one
// kind of layer are left out, because their places in `layers` are numbers.
CONVSCOPE_API const std::vector<std::string>& known_config_keys();

// Their defaults; keys without one are not there.
CONVSCOPE_API const FlatConfig& default_config();

}  // namespace convscope
