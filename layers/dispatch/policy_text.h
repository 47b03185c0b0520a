// SPDX-License-Identifier: Apache-2.0
// policy_text.h: what the text of a policy says. It is one of
//
//   auto, measure, <name>   one word
//   a,b,auto                a list: the first of its words that accepts the problem; only the last
//                           one may be auto or measure, which find an algorithm themselves
//   check:a,b               run both, compare, return a's result
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct PolicyText {
  std::vector<std::string> words;  // in order; of check:a,b the two names
  bool is_check = false;

  bool is_list() const { return !is_check && words.size() > 1; }
  CONVSCOPE_API std::string text() const;  // without blanks around the commas
};

// An error of kind kInvalid when the text has no such form. Names are not looked up.
CONVSCOPE_API PolicyText parse_policy(const char* operation, const std::string& policy);

// check:a,b
CONVSCOPE_API bool is_check(const std::string& policy);
// auto or measure: chosen among all that accept.
CONVSCOPE_API bool finds_itself(const std::string& word);

}  // namespace convscope
