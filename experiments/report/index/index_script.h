// SPDX-License-Identifier: Apache-2.0
// index_script.h: the script that searches and sorts the table of the index page.
#pragma once

namespace convscope {

extern const char* const kIndexScript;

}  // namespace convscope
