// SPDX-License-Identifier: Apache-2.0
// problem_list.h: the problems of a benchmark: a file of experiments/shapes or the text of one
// problem.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope {

// The beginning of a list. Its line "# operator: NAME" names the operator of the problems.
struct ListHead {
  std::string operation;      // "conv2d"; "" without that line
  std::string first_problem;  // as text; "" in a list without one
};
CONVSCOPE_API ListHead head_of_list(const std::string& path);

// Returns whether a list holds problems of this operator. A list that does not name its operator is
// recognised by its first problem, since other operators have other keys.
template <class Problem = Conv2dProblem>
bool is_list_of(const std::string& path, std::string_view operation = "conv2d") {
  const ListHead head = head_of_list(path);
  if (!head.operation.empty()) return head.operation == operation;
  try {
    Problem::parse(head.first_problem);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Calls take(line) for each line, except empty lines and lines that start with '#'. Adds the file
// name and line number to errors of `take`. Throws an error of kind kIo when the file cannot be
// opened, and an error for a file without a problem.
CONVSCOPE_API void for_each_problem(const std::string& path,
                                    const std::function<void(const std::string&)>& take);

// Reads one problem per line with Problem::parse.
template <class Problem = Conv2dProblem>
std::vector<Problem> problems_of_file(const std::string& path) {
  std::vector<Problem> out;
  for_each_problem(path, [&](const std::string& line) { out.push_back(Problem::parse(line)); });
  return out;
}

// Parses "forward,backward_weight" or "all". Returns each direction once, in kDirections' order.
CONVSCOPE_API std::vector<Direction> parse_directions(const std::string& text);

// Splits "a,b,c" into {a, b, c}.
CONVSCOPE_API std::vector<std::string> split_commas(const std::string& text);

}  // namespace convscope
