// SPDX-License-Identifier: Apache-2.0
// problem_list.cpp: the problems of a benchmark: a file of experiments/shapes or the text of one
// problem.
#include "experiments/bench/problem_list.h"

#include <algorithm>
#include <sstream>

#include "experiments/run_folder/user_words.h"
#include "framework/io/bytes.h"
#include "framework/registry.h"

namespace convscope {
namespace {
constexpr const char* kOperation = "bench";

std::string text_of_file(const std::string& path) {
  try {
    return read_text(path, kMaxTextBytes);
  } catch (const Error& error) {
    fail(ErrorKind::kIo, kOperation,
         cat("expected a readable file of shapes: ", error.what(),
             "; those of the source are in experiments/shapes"));
  }
}

constexpr std::string_view kOperatorLine = "# operator:";

std::string without_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' && c != '\t' && c != '\r') out += c;
  }
  return out;
}

}  // namespace

ListHead head_of_list(const std::string& path) {
  ListHead out;
  std::istringstream file(text_of_file(path));
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.starts_with(kOperatorLine)) {
      out.operation = without_spaces(std::string_view(line).substr(kOperatorLine.size()));
    } else if (!line.empty() && line[0] != '#') {
      out.first_problem = line;
      break;
    }
  }
  return out;
}

void for_each_problem(const std::string& path,
                      const std::function<void(const std::string&)>& take) {
  std::string line;
  int number = 0, taken = 0;
  std::istringstream file(text_of_file(path));
  while (std::getline(file, line)) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    try {
      take(line);
      ++taken;
    } catch (const Error& error) {
      const std::string of = head_of_list(path).operation;
      fail(kOperation, cat(path, ":", number, ": ", error.what(),
                           of.empty() ? "" : cat(" (a list of problems of ", of, ")")));
    }
  }
  CONVSCOPE_CHECK(taken > 0, kOperation, "expected at least one problem in ", path, ", got none");
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t comma = text.find(',', begin);
    out.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return out;
    begin = comma + 1;
  }
}

std::vector<Direction> parse_directions(const std::string& text) {
  if (text == "all") return {std::begin(kDirections), std::end(kDirections)};
  const std::vector<std::string> words = split_commas(text);
  std::vector<std::string> known = {"all"};
  for (const Direction direction : kDirections) known.emplace_back(name_of(direction));
  for (const std::string& word : words) {
    const bool one_of_them = word != "all" && std::ranges::count(known, word) == 1;
    CONVSCOPE_CHECK(one_of_them, kOperation, "expected --direction to be all or some of forward,",
                    "backward_data,backward_weight, got '", word, "'", did_you_mean(word, known));
  }
  std::vector<Direction> out;
  for (const Direction direction : kDirections) {
    if (std::ranges::count(words, std::string(name_of(direction))) > 0) out.push_back(direction);
  }
  return out;
}

}  // namespace convscope
