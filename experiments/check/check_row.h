// SPDX-License-Identifier: Apache-2.0
// check_row.h: the result of checking one algorithm. It is printed for people, written as JSON, and
// sent from the process that ran the check to the process that reports it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/check/features.h"
#include "experiments/check/matrix/tiers.h"
#include "framework/simd/cpu_isa.h"

namespace convscope {

struct CheckRow {
  std::string plugin = {}, hash = {};  // the file of a plug-in, absolute; "": built-in
  std::string algorithm = {};          // "" when the whole file is refused
  // "ok" or the kind of failure. "wrong": a result is wrong. "unmet": the results are correct, but
  // a required feature is missing. "ended": the algorithm ended its process or never returned.
  // "timeout": it exceeded --timeout. "refused": the file is not a plug-in of this program.
  std::string status = "ok";
  std::string cause = {};  // a sentence; "" when it is ok
  std::string first = {};  // "forward of n=1,..., integers, avx2, 1 thread"
  std::string where = {};  // "y[n,k,p,q] = [0,0,0,0]: got 49, expected 37"
  std::string again = {};  // the command that reproduces it
  std::int64_t cases = 0, refused = 0;
  std::vector<std::string> directions = {};
  std::vector<FeatureAnswer> features = {}, unmet = {};
  double error_growth = 0;  // the error bound that was applied
  double seconds = 0;
  std::string output = {};  // the first 4 KiB of the stdout and stderr of the check
  std::int64_t output_bytes = 0;

  bool passes() const { return status == "ok"; }
};

// Returns the lines of one row, or a table of many rows with the causes below it.
CONVSCOPE_API std::string check_text(const CheckRow& row);
CONVSCOPE_API std::string check_table(const std::vector<CheckRow>& rows);

// Converts a row to JSON, and back. row_from_json() throws an error if the text is not a row.
CONVSCOPE_API std::string row_json(const CheckRow& row);
CONVSCOPE_API CheckRow row_from_json(const std::string& text);

struct CheckSettings {
  std::string operation = "conv2d";
  bool quick = false;
  std::string problem = {};  // "": the matrix
  std::vector<std::string> require = {};
  double timeout = 0;           // seconds for one algorithm; 0: none
  double max_error_growth = 0;  // 0: what the algorithm states
};
// Returns {"format": "convscope check 1", "settings": {...}, "rows": [...], "passed": 1, "failed":
// 2, "complete": true}; complete is false while algorithms remain to be checked.
CONVSCOPE_API std::string check_json(const std::vector<CheckRow>& rows,
                                     const CheckSettings& settings, bool complete);

// The check of one operator, a part of its description (experiments/operators).
using CheckNote = std::function<void(const std::string&)>;  // gets "forward of n=2,..., integers"
struct CheckedAlgorithm {
  CheckRow row = {};
  std::string problem = {};  // in which the fault is, as text
};
// Checks the algorithm with this name in this process. Calls `note` before each case. Changes the
// instruction set and the number of threads of the process, and does not restore them.
using AlgorithmChecker =
    std::function<CheckedAlgorithm(const std::string& name, const CheckNote& note)>;
struct OperatorCheck {
  const char* problem = "";                // an example for --problem
  std::vector<std::string> features = {};  // which --require may name
  // Throws when the settings are wrong, or when the problems of the operator cannot be read.
  std::function<AlgorithmChecker(const CheckSettings&)> checker = {};
};

// What operators share to fill in a row.
struct FaultyCase {
  Direction direction;
  std::string problem;
  bool extra;  // with a bias (forward), or accumulating (gradients)
  matrix::Tier tier;
  Isa isa;
  int threads;
};
// Returns "forward of n=1,..., with a bias, integers, avx2, 1 thread".
CONVSCOPE_API std::string first_text(const FaultyCase& of);
// Returns "got 49, expected 37", with the allowed error unless that is 0.
CONVSCOPE_API std::string values_text(double got, double expected, double allowed);
// Sets the features that are required, but not supported, and the verdict if there are some.
CONVSCOPE_API void require(const std::vector<std::string>& names, CheckRow& row);
// Lowers the error bound that an algorithm states to --max-error-growth.
CONVSCOPE_API void limit_error_growth(double& error_growth, const CheckSettings& settings);

class CheckClock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace convscope
