// SPDX-License-Identifier: Apache-2.0
// cases.h: convolution problems for tests: those of experiments/shapes, and additional ones of the
// test matrix (experiments/check/matrix/check_problems.h).
#pragma once

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "experiments/check/matrix/check_problems.h"
#include "framework/check.h"

namespace convscope::testing {

using namespace matrix;

inline std::int64_t number_from_environment(const char* name, std::int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::atoll(text);
}

// Returns the folder of the repository: the value of the environment variable CONVSCOPE_SOURCE_DIR,
// or the folder from which the tests were built.
inline std::string source_folder() {
  const char* text = std::getenv("CONVSCOPE_SOURCE_DIR");
  return text == nullptr ? CONVSCOPE_SOURCE_DIR : text;
}

// Returns the problems of experiments/shapes/<name>.txt.
inline std::vector<Conv2dProblem> shapes_of(const std::string& name) {
  std::vector<Conv2dProblem> out;
  const std::string path = source_folder() + "/experiments/shapes/" + name + ".txt";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    out.push_back(Conv2dProblem::parse(line));
  }
  CONVSCOPE_CHECK(!out.empty(), "tests", "expected problems in ", path, ", got none");
  return out;
}

}  // namespace convscope::testing
