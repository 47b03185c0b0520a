// SPDX-License-Identifier: Apache-2.0
// check_algorithm.h: runs the whole test matrix on one algorithm, as the tests do for all built-in
// algorithms: small problems, the files of experiments/shapes, random problems, long sums, and many
// threads. It stops at the first fault and states the likely cause.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/check/features.h"
#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

// The problem lists of a folder. The edge cases come first, because they are small and each has a
// different special property. Lists of other operators are skipped. Throws an error of kind kIo
// when a list cannot be read.
struct CheckLists {
  std::vector<Conv2dProblem> edge_cases = {}, others = {};
};
CONVSCOPE_API CheckLists check_lists(const std::string& folder);

struct CheckOptions {
  bool quick = false;                        // only small problems, edge cases, few random ones
  std::vector<Conv2dProblem> problems = {};  // if not empty, only these are checked
  CheckLists lists = {};                     // by default the lists of the program
  std::vector<std::string> require = {};     // features that it must support (features.h)
  // A function that is called before each case with its text: "forward of n=2,c=..., integers".
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct CheckReport {
  std::int64_t cases = 0;             // a case: a problem, a direction and a kind of numbers
  std::int64_t refused = 0;           // problems and directions that the algorithm refuses
  std::vector<Direction> directions;  // in which something was checked
  bool each_isa = false;              // the bits differ between instruction sets
  double seconds = 0;

  std::vector<FeatureAnswer> features;  // whether it supports each feature, and why not

  std::string sentence;                // the likely cause of the first fault; "" if it passes
  std::optional<matrix::Fault> fault;  // no value if the algorithm's description is wrong

  bool passes() const { return sentence.empty(); }
  // Required features that the algorithm does not support.
  std::vector<FeatureAnswer> unmet;
};

// Changes the instruction set and the number of threads of the process, and does not restore them.
CONVSCOPE_API CheckReport check_algorithm(const Conv2dAlgorithm& algorithm,
                                          const CheckOptions& options);

}  // namespace convscope
