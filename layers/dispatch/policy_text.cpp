// SPDX-License-Identifier: Apache-2.0
// policy_text.cpp: parses the text of a policy: one word, a list, or check:a,b.
#include "layers/dispatch/policy_text.h"

#include <algorithm>
#include <string_view>

#include "framework/io/former_names.h"
#include "framework/registry.h"

namespace convscope {
namespace {

constexpr std::string_view kCheckPrefix = "check:";

// Returns the words between the commas, without blanks around them.
std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  for (;;) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view word = text.substr(0, comma);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    out.emplace_back(accepted_name(word));
    if (comma == text.size()) return out;
    text.remove_prefix(comma + 1);
  }
}

bool has_empty(const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [](const std::string& word) { return word.empty(); });
}

void check_list(const char* operation, const std::string& policy,
                const std::vector<std::string>& words) {
  CONVSCOPE_CHECK(!has_empty(words), operation,
                  "expected a word at each place of the list, like 'winograd_f4x3,auto', got '",
                  policy, "'");
  for (std::size_t i = 0; i < words.size(); ++i) {
    CONVSCOPE_CHECK(
        !is_check(words[i]), operation,
        "expected check:<a>,<b> as the only entry, because it takes both names, got the list '",
        policy, "'");
    CONVSCOPE_CHECK(i + 1 == words.size() || !finds_itself(words[i]), operation, "expected '",
                    words[i], "' at the end of the list, because no entry after it is reached, ",
                    "got '", policy, "'");
    CONVSCOPE_CHECK(std::count(words.begin(), words.end(), words[i]) == 1, operation,
                    "expected different words in the list, got '", policy, "'");
  }
}

}  // namespace

std::string PolicyText::text() const {
  return cat(is_check ? kCheckPrefix : std::string_view(), join(words, ","));
}

bool is_check(const std::string& policy) { return policy.starts_with(kCheckPrefix); }

bool finds_itself(const std::string& word) { return word == "auto" || word == "measure"; }

PolicyText parse_policy(const char* operation, const std::string& policy) {
  if (is_check(policy)) {
    PolicyText out{split(std::string_view(policy).substr(kCheckPrefix.size())), true};
    CONVSCOPE_CHECK(out.words.size() == 2 && !has_empty(out.words), operation,
                    "expected two algorithms like 'check:im2col_gemm,reference', got '", policy,
                    "'");
    return out;
  }
  PolicyText out{split(policy), false};
  if (out.is_list()) check_list(operation, policy, out.words);
  return out;
}

}  // namespace convscope
