// SPDX-License-Identifier: Apache-2.0
// run_report.h: the table of `convscope report`, for the command line and for Python.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "framework/export.h"

namespace convscope {

inline constexpr std::size_t kAnyWidth = std::numeric_limits<std::size_t>::max();

struct ReportQuery {
  std::vector<std::string> runs;     // run folders, folders of runs, or runs/ as a whole
  std::vector<std::string> columns;  // "+KEY" adds to the usual columns; "all"
  std::vector<std::string> filters;  // "optim.lr<0.1"
  std::vector<std::string> group;    // one row for runs with the same values of these keys
  std::vector<std::string> tags;
  std::string format = "md";  // md, csv, json or latex
  std::string sort;           // a column or a config key
  bool descending = false;
  // Width of the terminal in characters; columns that do not fit are dropped. With kAnyWidth, no
  // column is dropped. In both cases, a column in which all rows agree becomes a line below the
  // table. With 0, the table has every column.
  std::size_t width = 0;
};

struct RunReport {
  std::string text;
  std::vector<std::string> remarks;  // one line each: rows left out, unreadable files
};

// Returns the report. Fails with kIo when there is no run, with kInvalid for an unknown column.
CONVSCOPE_API RunReport run_report(const ReportQuery& query);

}  // namespace convscope
