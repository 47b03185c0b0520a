// SPDX-License-Identifier: Apache-2.0
// config_section.h: config.yaml on a run's page: what is not the default, as a table and marked in
// the whole text.
#pragma once

#include <string>

namespace convscope {

// Markup; "" for no text. `yaml` is a resolved config; anything else is shown without marks.
std::string config_section(const std::string& yaml);

}  // namespace convscope
