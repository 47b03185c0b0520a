// SPDX-License-Identifier: Apache-2.0
// index_script.h: what makes the index page's table searched and sorted.
#pragma once

namespace convscope {

extern const char* const kIndexScript;

}  // namespace convscope
