// SPDX-License-Identifier: Apache-2.0
// check_algorithm.h: the whole test matrix on one algorithm, as the tests run it on all of them:
// small problems, then the files of experiments/shapes, random problems, long sums, many threads.
// It stops at the first fault and states the likely cause.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/check/features.h"
#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

// The problem lists of a folder that the matrix uses: edge cases first, because they are small and
// each is special. Lists of other operators are skipped. An unreadable list is a fault of the
// program's files, not of an algorithm: throws an error of kind kIo.
struct CheckLists {
  std::vector<Conv2dProblem> edge_cases = {}, others = {};
};
CONVSCOPE_API CheckLists check_lists(const std::string& folder);

struct CheckOptions {
  bool quick = false;                        // small problems, edge cases and some random ones
  std::vector<Conv2dProblem> problems = {};  // not empty: only these
  CheckLists lists = {};                     // those of the program
  std::vector<std::string> require = {};     // features that the algorithm must take (features.h)
  // Called with what is about to run: "forward of n=2,c=..., integers".
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct CheckReport {
  std::int64_t cases = 0;             // a problem, a direction and a kind of numbers
  std::int64_t refused = 0;           // problems and directions that the algorithm refuses
  std::vector<Direction> directions;  // in which something was checked
  bool each_isa = false;              // the bits differ between instruction sets
  double seconds = 0;

  std::vector<FeatureAnswer> features;  // which it supports, and why not

  // The first fault; empty when the algorithm passes.
  std::string sentence;                // the likely cause
  std::optional<matrix::Fault> fault;  // none: the algorithm's description is wrong

  bool passes() const { return sentence.empty(); }
  // Required features that it does not support.
  std::vector<FeatureAnswer> unmet;
};

// Changes the instruction set and the number of threads, and does not restore them.
CONVSCOPE_API CheckReport check_algorithm(const Conv2dAlgorithm& algorithm,
                                          const CheckOptions& options);

}  // namespace convscope
