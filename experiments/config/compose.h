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

// ---- files ----

// Returns the text. Throws Error of kind kConfig when the file is missing, kIo when it cannot be
// read. The error's sentence is only the reason, such as "a folder".
std::string read_file(const std::string& path);
// Returns the text of the file that the user named; the error sentence contains the name.
std::string read_named_file(const std::string& path);
// Returns "quickstart" for "experiments/configs/quickstart.yaml".
std::string name_from_file(std::string_view file_name);
// Returns the text with '_' for characters that a folder name may not contain.
std::string folder_name(std::string_view text);

}  // namespace convscope::config
