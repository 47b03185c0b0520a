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

}  // namespace convscope::config
