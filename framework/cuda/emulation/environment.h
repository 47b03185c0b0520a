// SPDX-License-Identifier: Apache-2.0
// environment.h: reads environment variables with two permitted values. Any other value is an
// error: otherwise, a test with a mistyped value could pass without testing anything.
#pragma once

#include <cstdlib>
#include <string_view>

#include "framework/check.h"

namespace emulation {

// Returns true if the variable is `word`, false if unset, empty or `other`. Throws for other text.
inline bool environment_says(const char* name, std::string_view word, std::string_view other) {
  const char* const text = std::getenv(name);
  const std::string_view given = text == nullptr ? "" : text;
  CONVSCOPE_CHECK(given.empty() || given == word || given == other, "cuda emulation", "expected ",
                  name, " to be ", word, " or ", other, ", got '", given, "'");
  return given == word;
}

}  // namespace emulation
