// SPDX-License-Identifier: Apache-2.0
// user_words.cpp: the tags and the note that users attach to a run, for tables and searches.
#include "experiments/run_folder/user_words.h"

#include <algorithm>
#include <set>

#include "framework/check.h"
#include "framework/registry.h"

namespace convscope {

void check_word(const std::string& word, const std::string& also, const char* why) {
  const std::string known = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" + also;
  const bool fits = !word.empty() && word.size() <= 100 && word[0] != '.' && word[0] != '-' &&
                    word.find_first_not_of(known) == std::string::npos;
  CONVSCOPE_CHECK(fits, "config", "expected at most 100 letters, digits and any of '", also,
                  "', a letter or digit first, ", why, ", got '", word.substr(0, 100), "'");
}

void check_tags(const std::vector<std::string>& tags) {
  std::set<std::string> seen;
  for (const std::string& tag : tags) {
    check_word(tag, "._-:/+", "because tags are shown in tables and searched");
    CONVSCOPE_CHECK(seen.insert(tag).second, "config", "expected each tag once, got '", tag,
                    "' twice");
  }
}

void check_note(const std::string& note) {
  const bool is_one_line = std::ranges::none_of(
      note, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  CONVSCOPE_CHECK(is_one_line, "config", "expected a note of one line, got line ends or other ",
                  "control characters");
  CONVSCOPE_CHECK(note.size() <= 1000, "config", "expected a note of at most 1000 bytes, got ",
                  note.size());
}

std::vector<std::string> tags_of_text(const std::string& text) {
  std::vector<std::string> tags;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(", ", at), text.size());
    tags.push_back(text.substr(at, end - at));
    at = end + 2;
  }
  return tags;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = nearest_word(word, known);
  return near.empty() || near == word ? "" : cat("; did you mean '", near, "'?");
}

}  // namespace convscope
