// SPDX-License-Identifier: Apache-2.0
// check_algorithm.h: the whole matrix on one algorithm, as the tests run it on all of them: small
// problems first, then the files of experiments/shapes, random problems, long sums, many threads.
// It ends with the first fault and says what its cause seems to be.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/check/features.h"
#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

// The lists of problems that the matrix takes, of a folder: edge cases first, as they are small and
// each has something of its own. Lists of other operators are passed over. A list that cannot be
// read is a fault of the program's files, not of an algorithm: an error of kind kIo.
struct CheckLists {
  std::vector<Conv2dProblem> edge_cases = {}, others = {};
};
CONVSCOPE_API CheckLists check_lists(const std::string& folder);

struct CheckOptions {
  bool quick = false;                        // small problems, edge cases and some random ones
  std::vector<Conv2dProblem> problems = {};  // not empty: these alone
  CheckLists lists = {};                     // those of the program
  std::vector<std::string> require = {};     // features that the card must take (features.h)
  // Told what is about to run: "forward of n=2,c=..., integers".
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct CheckReport {
  std::int64_t cases = 0;             // a problem, a direction and a kind of numbers
  std::int64_t refused = 0;           // problems and directions that the card does not take
  std::vector<Direction> directions;  // in which something was checked
  bool each_isa = false;              // the bits differ between instruction sets
  double seconds = 0;

  std::vector<FeatureAnswer> features;  // which it takes, and why not

  // Of the first fault; empty when the card passes.
  std::string sentence;                // the likely cause
  std::optional<matrix::Fault> fault;  // none: the card itself is wrong

  bool passes() const { return sentence.empty(); }
  // Of the required ones, which it does not take.
  std::vector<FeatureAnswer> unmet;
};

// Sets instruction set and number of threads, and leaves the last ones.
CONVSCOPE_API CheckReport check_algorithm(const Conv2dAlgorithm& card, const CheckOptions& options);

}  // namespace convscope
