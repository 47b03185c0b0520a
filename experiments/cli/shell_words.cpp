// SPDX-License-Identifier: Apache-2.0
// shell_words.cpp: recognises KEY=VALUE that the shell has split because quotes are missing.
#include "experiments/cli/shell_words.h"

#include <string_view>

#include "framework/check.h"

namespace convscope {
namespace {

// Returns "optim.lr" for "optim.lr=0.1"; "" when the word is not KEY=VALUE.
std::string_view key_of(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || word.starts_with('-')) return {};
  const std::string_view key = word.substr(0, equals);
  const bool is_path =
      key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string_view::npos;
  return is_path ? key : std::string_view();
}

// Returns the number of open brackets minus closed ones, outside quotes.
int open_brackets(std::string_view text) {
  int open = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else {
      open += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    }
  }
  return open;
}

std::string cut_at_spaces(const std::vector<std::string>& words) {
  for (std::size_t first = 0; first + 1 < words.size(); ++first) {
    if (key_of(words[first]).empty() || open_brackets(words[first]) <= 0) continue;
    std::string whole = words[first];
    for (std::size_t i = first + 1; i < words.size() && open_brackets(whole) > 0; ++i) {
      whole += " " + words[i];
    }
    if (open_brackets(whole) != 0) continue;
    return cat("expected KEY=VALUE as one word, got '", words[first], "' and then '",
               words[first + 1], "', because the shell cuts at spaces; put it in quotes: \"", whole,
               "\"");
  }
  return "";
}

// Returns "method: magnitude" for "sparsity=method:magnitude". Returns "" if the value is not a
// pair with a colon.
std::string pair_of(std::string_view word) {
  const std::string_view value = word.substr(word.find('=') + 1);
  const std::size_t colon = value.find(':');
  if (colon == std::string_view::npos || colon == 0) return "";
  const std::string_view key = value.substr(0, colon);
  const bool is_path =
      key.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.") == std::string_view::npos;
  return is_path ? cat(key, ": ", value.substr(colon + 1)) : "";
}

std::string taken_apart_by_braces(const std::vector<std::string>& words) {
  for (std::size_t first = 0; first + 1 < words.size(); ++first) {
    const std::string_view key = key_of(words[first]);
    const std::string one = pair_of(words[first]), other = pair_of(words[first + 1]);
    if (key.empty() || one.empty() || other.empty() || key_of(words[first + 1]) != key) continue;
    if (one.substr(0, one.find(':')) == other.substr(0, other.find(':'))) continue;
    std::string pairs = one;
    for (std::size_t i = first + 1; i < words.size() && key_of(words[i]) == key; ++i) {
      pairs += ", " + pair_of(words[i]);
    }
    return cat("expected each key once, got '", words[first], "' and then '", words[first + 1],
               "', because the shell takes braces apart; put the whole in quotes: \"", key, "={",
               pairs, "}\"");
  }
  return "";
}

}  // namespace

std::string missing_quotes(const std::vector<std::string>& words) {
  const std::string cut = cut_at_spaces(words);
  return cut.empty() ? taken_apart_by_braces(words) : cut;
}

}  // namespace convscope
