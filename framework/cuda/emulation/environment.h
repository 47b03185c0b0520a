// SPDX-License-Identifier: Apache-2.0
// environment.h: variables of the environment that choose between two words. A word that is
// mistyped must not look like the usual one: tests that ask for the other would pass and show
// nothing.
#pragma once

#include <cstdlib>
#include <string_view>

#include "framework/check.h"

namespace emulation {

// Whether the variable is `word`; unset, empty or `other`: it is not. Anything else is an error.
inline bool environment_says(const char* name, std::string_view word, std::string_view other) {
  const char* const text = std::getenv(name);
  const std::string_view given = text == nullptr ? "" : text;
  CONVSCOPE_CHECK(given.empty() || given == word || given == other, "cuda emulation", "expected ",
                  name, " to be ", word, " or ", other, ", got '", given, "'");
  return given == word;
}

}  // namespace emulation
