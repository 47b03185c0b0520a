// SPDX-License-Identifier: Apache-2.0
// clean_text.h: text of files, names and configs before it reaches a terminal, where control
// characters would act: move, colour, overwrite what stands there, or rename the window.
#pragma once

#include <string>
#include <string_view>

#include "framework/export.h"

namespace convscope {

// U+FFFD in place of each control character but line end and tab, of each mark that turns the
// direction of writing round, and of bytes that are no UTF-8.
CONVSCOPE_API std::string clean_text(std::string_view text);
// The same in one line: line ends and tabs become spaces.
CONVSCOPE_API std::string clean_line(std::string_view text);

}  // namespace convscope
