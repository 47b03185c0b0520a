// SPDX-License-Identifier: Apache-2.0
// compose.h: builds one tree from a file, its base files (`extends`), and the overrides. Maps are
// merged key by key; lists and scalars are replaced; later values win. Every node keeps its origin.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/config/document.h"
#include "experiments/config/experiment_config.h"

namespace convscope::config {

// Returns the tree. `reader` returns the text of a file that `extends` names; its path is relative
// to the file that contains `extends`.
Node compose(std::string_view text, const std::string& file_name, const ConfigReader& reader,
             const std::vector<std::string>& overrides, Mistakes& mistakes);

// Sets the value at a dotted path. Maps are merged, and missing maps are created. Any other value
// replaces the old one, unless the old one has a higher Origin::layer.
void assign(Node& root, std::string_view dotted_path, const Origin& origin, Node value,
            Mistakes& mistakes);
// Sets a value from the text "dotted.path=YAML value".
void apply_override(Node& root, const std::string& text, int layer, Mistakes& mistakes);
void set_layer(Node& node, int layer);  // for the whole tree

}  // namespace convscope::config
