// SPDX-License-Identifier: Apache-2.0
// compose.h: one tree from a file, the files it extends, and the overrides. Maps are merged key by
// key, lists and scalars are replaced; what comes later wins. Every node keeps its own origin.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/config/document.h"
#include "experiments/config/experiment_config.h"

namespace convscope::config {

// `reader` gives the text of the files that `extends` names, relative to the file that names them.
Node compose(std::string_view text, const std::string& file_name, const ConfigReader& reader,
             const std::vector<std::string>& overrides, Mistakes& mistakes);

// Puts a value at a dotted path; maps are merged, what is missing on the way is made. A value
// counts as later than those of lower layers.
void assign(Node& root, std::string_view dotted_path, const Origin& origin, Node value,
            Mistakes& mistakes);
// The same for the text "dotted.path=YAML value".
void apply_override(Node& root, const std::string& text, int layer, Mistakes& mistakes);
void set_layer(Node& node, int layer);  // of the whole tree

}  // namespace convscope::config
