// SPDX-License-Identifier: Apache-2.0
// check_algorithm.h: the whole matrix on one algorithm, as the tests run it on all of them: small
// problems first, then the files of experiments/shapes, random problems, long sums, many threads.
// It ends with the first fault and says what its cause seems to be.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/check/matrix/convolution_case.h"

namespace convscope {

struct CheckOptions {
  bool quick = false;                   // small problems, edge cases and some random ones
  std::vector<Conv2dProblem> problems;  // not empty: these alone
  std::string shapes_folder;            // of the files *.txt
  // Told what is about to run: "forward of n=2,c=..., integers".
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct CheckReport {
  std::int64_t cases = 0;             // a problem, a direction and a kind of numbers
  std::int64_t refused = 0;           // problems and directions that the card does not take
  std::vector<Direction> directions;  // in which something was checked
  bool each_isa = false;              // the bits differ between instruction sets
  double seconds = 0;

  // Of the first fault; empty when the card passes.
  std::string sentence;                // the likely cause
  std::optional<matrix::Fault> fault;  // none: the card itself is wrong

  bool passes() const { return sentence.empty(); }
};

// Sets instruction set and number of threads, and leaves the last ones.
CONVSCOPE_API CheckReport check_algorithm(const Conv2dAlgorithm& card, const CheckOptions& options);

// For people. `command` shows the fault again.
CONVSCOPE_API std::string report_text(const Conv2dAlgorithm& card, const CheckReport& report,
                                      const std::string& command);

}  // namespace convscope
