// SPDX-License-Identifier: Apache-2.0
// flat_config.h: the values of a config by their dotted keys, for tables: "optim.lr" -> 0.05.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "framework/options.h"

namespace convscope {

// A list of plain values is one text, "[6, 16]"; the maps in a list are numbered: "layers.0.type".
using FlatConfig = std::map<std::string, OptionValue>;

// Reads a config with the loader's limits on size and nesting, but without the tables of known
// keys, so that keys of other versions are kept. Throws Error of kind kConfig for a text that is
// not YAML.
CONVSCOPE_API FlatConfig flat_config(std::string_view yaml, std::string_view file_name);

// Returns all keys that a config may have: "optim.lr", "quant.w_bits", ... Keys of the entries of
// `layers` are left out, because their paths contain the position in the list.
CONVSCOPE_API const std::vector<std::string>& known_config_keys();

// Returns the defaults of the keys that have one.
CONVSCOPE_API const FlatConfig& default_config();

}  // namespace convscope
