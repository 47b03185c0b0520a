// SPDX-License-Identifier: Apache-2.0
// text_layout.h: columns and paragraphs for a terminal of 100 columns.
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

constexpr std::size_t kTextWidth = 100;

// Formats rows of equal length, with `indent` blanks before each; columns in `right` are
// right-aligned. Gaps shrink where the text would be wider than the terminal.
CONVSCOPE_API std::string columns_text(const std::vector<std::vector<std::string>>& rows,
                                       std::size_t indent,
                                       const std::vector<std::size_t>& right = {});

// Wraps one paragraph at blanks. The first line keeps its indent; later lines have `indent` blanks.
CONVSCOPE_API std::string wrapped_text(const std::string& text, std::size_t indent = 4,
                                       std::size_t width = kTextWidth);

// Formats with "%.4g" and the like.
CONVSCOPE_API std::string number_text(const char* format, double value);

}  // namespace convscope
