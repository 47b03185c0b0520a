// SPDX-License-Identifier: Apache-2.0
// user_words.h: words of users: the tags and the note of a run, and suggestions for unknown words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Throws Error of kind kInvalid unless each tag is a word of at most 100 letters, digits and any of
// '._-:/+', and no tag appears twice.
CONVSCOPE_API void check_tags(const std::vector<std::string>& tags);
// Throws Error of kind kInvalid unless the note is one line of at most 1000 bytes.
CONVSCOPE_API void check_note(const std::string& note);
// Splits "a, b" into two tags; "" has no tags.
CONVSCOPE_API std::vector<std::string> tags_of_text(const std::string& text);

// Checks one word like check_tags(). `also` holds the characters that are allowed in addition to
// letters and digits.
CONVSCOPE_API void check_word(const std::string& word, const std::string& also, const char* why);

// Returns "; did you mean 'sgd'?" with the known word that is nearest to another word, or "".
CONVSCOPE_API std::string did_you_mean(std::string_view word,
                                       const std::vector<std::string>& known);

}  // namespace convscope
