// SPDX-License-Identifier: Apache-2.0
// policy_text.h: parses the text of a policy, which is one of
//
//   auto, measure, <name>   one word
//   a,b,auto                a list: the first of its words that accepts the problem. Only the last
//                           word may be auto or measure, which always find an algorithm
//   check:a,b               run both, compare, return a's result
#pragma once

#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

struct PolicyText {
  std::vector<std::string> words;  // in order; for check:a,b the two names
  bool is_check = false;

  bool is_list() const { return !is_check && words.size() > 1; }
  CONVSCOPE_API std::string text() const;  // without blanks around the commas
};

// Parses a policy; throws kind kInvalid when the text is malformed. Names are not looked up.
CONVSCOPE_API PolicyText parse_policy(const char* operation, const std::string& policy);

// Returns whether the policy is check:a,b.
CONVSCOPE_API bool is_check(const std::string& policy);
// Returns whether the word is auto or measure, which choose among all algorithms that accept.
CONVSCOPE_API bool finds_itself(const std::string& word);

}  // namespace convscope
