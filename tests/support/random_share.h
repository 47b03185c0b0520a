// SPDX-License-Identifier: Apache-2.0
// random_share.h: divides the random problems of a test among several processes, because under a
// GPU sanitizer they take minutes. CONVSCOPE_TEST_RANDOM_SHARE=2/6 selects the second of six
// shares. All shares together have the same problems as one process without the variable.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

#include "framework/check.h"

namespace convscope::testing {

struct RandomShare {
  std::int64_t which = 1;
  std::int64_t of = 1;

  bool has(std::int64_t problem) const { return problem % of == which - 1; }
};

inline RandomShare random_share() {
  const char* text = std::getenv("CONVSCOPE_TEST_RANDOM_SHARE");
  if (text == nullptr || *text == '\0') return {};
  char* end = nullptr;
  RandomShare out;
  out.which = std::strtoll(text, &end, 10);
  if (*end == '/') out.of = std::strtoll(end + 1, &end, 10);
  CONVSCOPE_CHECK(*end == '\0' && 1 <= out.which && out.which <= out.of, "tests",
                  "expected CONVSCOPE_TEST_RANDOM_SHARE as 2/6, the second of six, got ",
                  std::string(text));
  return out;
}

}  // namespace convscope::testing
