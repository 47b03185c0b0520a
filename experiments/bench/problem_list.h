// SPDX-License-Identifier: Apache-2.0
// problem_list.h: the problems that a benchmark runs on: a file of experiments/shapes or the text
// of one problem.
#pragma once

#include <string>
#include <vector>

#include "layers/conv2d/problem.h"

namespace convscope {

// One problem in a line, as Conv2dProblem::parse reads it; empty lines and lines that start with
// '#' are passed over. An error that names file and line when one cannot be read, and of kind kIo
// when the file cannot be opened; a file without a problem is an error too.
CONVSCOPE_API std::vector<Conv2dProblem> problems_of_file(const std::string& path);

// "forward,backward_weight" or "all"; each once, in the order of kDirections.
CONVSCOPE_API std::vector<Direction> parse_directions(const std::string& text);

// "a,b,c" -> {a, b, c}
CONVSCOPE_API std::vector<std::string> split_commas(const std::string& text);

}  // namespace convscope
