// SPDX-License-Identifier: Apache-2.0
// run_table.h: builds a table with a row per run, in Markdown, CSV or JSON, sorted by any column.
// experiments/run_folder/run_summary.h explains the columns; table/run_columns.h lists them.
#pragma once

#include <string>
#include <vector>

#include "experiments/config/flat/flat_config.h"
#include "experiments/report/text_table.h"
#include "experiments/run_folder/run_summary.h"

namespace convscope {

struct RunRow {
  RunSummary summary;
  bool has_summary = true;
  std::string path;
  std::string state;       // DONE, RUNNING, INTERRUPTED, FAILED, KILLED, UNREADABLE
  std::string reason;      // reason of other states than DONE and RUNNING
  FlatConfig config = {};  // config.yaml, after read_config()
};

// Returns the row of one run folder; an unreadable run has a row with the reason.
CONVSCOPE_API RunRow read_run_row(const std::string& folder);
// Adds the keys of config.yaml to the row. Returns what is wrong with the file, or "".
CONVSCOPE_API std::string read_config(RunRow& row);

// Returns "id", "name", "batch_size", ..., in the order of the table.
CONVSCOPE_API std::vector<std::string> all_columns();
// Returns id, name, batch_size, avg_forward, avg_backward, avg_forward_mem, avg_backward_mem,
// kernel_size, acc.
CONVSCOPE_API std::vector<std::string> core_columns();
// Returns the columns that people see by default: the core columns, execution, algorithm, device,
// threads, images_per_s. More columns appear when needed: avg_inference and weight_bytes if a run
// has them; step if runs differ in it; busy if a run was disturbed; state and reason if a run is
// not done.
CONVSCOPE_API std::vector<std::string> reading_columns(const std::vector<RunRow>& rows);

// Sorts the rows stably; rows without a value come last. A column is one of all_columns() or a
// config key; an unknown column is an error that names the nearest one.
CONVSCOPE_API void sort_rows(std::vector<RunRow>& rows, const std::string& column, bool descending);

// Returns the chosen columns of runs.
CONVSCOPE_API TextTable run_table(const std::vector<RunRow>& rows,
                                  const std::vector<std::string>& columns);
CONVSCOPE_API std::string to_markdown(const std::vector<RunRow>& rows,
                                      const std::vector<std::string>& columns);
CONVSCOPE_API std::string to_csv(const std::vector<RunRow>& rows,
                                 const std::vector<std::string>& columns);
CONVSCOPE_API std::string to_json(const std::vector<RunRow>& rows,
                                  const std::vector<std::string>& columns);

}  // namespace convscope
