// SPDX-License-Identifier: Apache-2.0
// config_section.h: config.yaml on a run's page: a table of the values that differ from the
// defaults, and the whole text with these values marked.
#pragma once

#include <string>

namespace convscope {

// Returns markup; "" for an empty text. `yaml` is a resolved config; any other text is shown
// unmarked.
std::string config_section(const std::string& yaml);

}  // namespace convscope
