// SPDX-License-Identifier: Apache-2.0
// check_row.h: the result of checking one algorithm. It is printed for people, written as JSON, and
// sent from the process that ran the check to the process that reports it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/check/check_algorithm.h"

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

CONVSCOPE_API CheckRow row_of(const Conv2dAlgorithm& algorithm, const CheckReport& report);

// Returns the lines of one row, or a table of many rows with the causes below it.
CONVSCOPE_API std::string check_text(const CheckRow& row);
CONVSCOPE_API std::string check_table(const std::vector<CheckRow>& rows);

// Converts a row to JSON, and back. row_from_json() throws an error if the text is not a row.
CONVSCOPE_API std::string row_json(const CheckRow& row);
CONVSCOPE_API CheckRow row_from_json(const std::string& text);

struct CheckSettings {
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

}  // namespace convscope
