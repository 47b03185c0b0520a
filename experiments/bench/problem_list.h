// SPDX-License-Identifier: Apache-2.0
// problem_list.h: the problems that a benchmark runs on: a file of experiments/shapes or the text
// of one problem.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope {

// Calls take(line) for each line; empty lines and lines that start with '#' are passed over. Errors
// of `take` get the name of the file and the line; an error of kind kIo when the file cannot be
// opened; a file without a problem is an error too.
CONVSCOPE_API void for_each_problem(const std::string& path,
                                    const std::function<void(const std::string&)>& take);

// One problem in a line, as Problem::parse reads it.
template <class Problem = Conv2dProblem>
std::vector<Problem> problems_of_file(const std::string& path) {
  std::vector<Problem> out;
  for_each_problem(path, [&](const std::string& line) { out.push_back(Problem::parse(line)); });
  return out;
}

// "forward,backward_weight" or "all"; each once, in the order of kDirections.
CONVSCOPE_API std::vector<Direction> parse_directions(const std::string& text);

// "a,b,c" -> {a, b, c}
CONVSCOPE_API std::vector<std::string> split_commas(const std::string& text);

}  // namespace convscope
