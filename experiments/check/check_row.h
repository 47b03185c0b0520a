// SPDX-License-Identifier: Apache-2.0
// check_row.h: what the check of one algorithm found, as a row: for people, as JSON, and from the
// process in which it ran to the one that tells it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/check/check_algorithm.h"

namespace convscope {

struct CheckRow {
  std::string plugin = {}, hash = {};  // the file of a plug-in, absolute; "" of ours
  std::string algorithm = {};          // "" when a file is refused as a whole
  // ok; wrong: a result; unmet: right, but something that was required is not taken; ended: it
  // ended its process, or never returned; timeout: --timeout was over; refused: not a plug-in of
  // this program.
  std::string status = "ok";
  std::string cause = {};  // in a sentence; "" when it is ok
  std::string first = {};  // "forward of n=1,..., integers, avx2, 1 thread"
  std::string where = {};  // "y[n,k,p,q] = [0,0,0,0]: got 49, expected 37"
  std::string again = {};  // the command that shows it again
  std::int64_t cases = 0, refused = 0;
  std::vector<std::string> directions = {};
  std::vector<FeatureAnswer> features = {}, unmet = {};
  double error_growth = 0;  // that it was held to
  double seconds = 0;
  std::string output = {};  // the first 4 KiB of what it wrote to stdout and stderr
  std::int64_t output_bytes = 0;

  bool passes() const { return status == "ok"; }
};

CONVSCOPE_API CheckRow row_of(const Conv2dAlgorithm& card, const CheckReport& report);

// The lines of one row, and a table of many, one line each with the causes below.
CONVSCOPE_API std::string check_text(const CheckRow& row);
CONVSCOPE_API std::string check_table(const std::vector<CheckRow>& rows);

// One row, and back again: what another process wrote, or an error.
CONVSCOPE_API std::string row_json(const CheckRow& row);
CONVSCOPE_API CheckRow row_from_json(const std::string& text);

struct CheckSettings {
  bool quick = false;
  std::string problem = {};  // "": the matrix
  std::vector<std::string> require = {};
  double timeout = 0;           // seconds for one algorithm; 0: none
  double max_error_growth = 0;  // 0: what the card says
};
// {"format": "convscope check 1", "settings": {...}, "rows": [...], "passed": 1, "failed": 2,
// "complete": true}; not complete: others are still to be checked.
CONVSCOPE_API std::string check_json(const std::vector<CheckRow>& rows,
                                     const CheckSettings& settings, bool complete);

}  // namespace convscope
