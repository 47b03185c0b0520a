// SPDX-License-Identifier: Apache-2.0
// run_table.h: runs as rows of a table: Markdown, CSV or JSON, sorted by any column. What the
// columns mean stands in experiments/run_folder/run_summary.h; table/run_columns.h lists them.
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
  std::string reason;      // why, when it is none of DONE and RUNNING
  FlatConfig config = {};  // of config.yaml, after read_config()
};

// The row of one run folder; a run that cannot be read is a row too, and says why.
CONVSCOPE_API RunRow read_run_row(const std::string& folder);
// The keys of its config.yaml too. Returns what is wrong with the file, or "".
CONVSCOPE_API std::string read_config(RunRow& row);

// "id", "name", "batch_size", ..., in the order of the table.
CONVSCOPE_API std::vector<std::string> all_columns();
// The first ones: id, name, batch_size, avg_forward, avg_backward, avg_forward_mem,
// avg_backward_mem, kernel_size, acc.
CONVSCOPE_API std::vector<std::string> core_columns();
// What a person reads first: the core, execution, algorithm, device, threads, images_per_s;
// avg_inference and weight_bytes when a run has them; step when the runs differ in it; busy when
// other programs disturbed one; and, when a run is not done, its state and the reason.
CONVSCOPE_API std::vector<std::string> reading_columns(const std::vector<RunRow>& rows);

// Rows without a value in the column come last, equal rows keep their order. A column is any of
// all_columns() or a key of the config; an unknown one is an error that names the nearest.
CONVSCOPE_API void sort_rows(std::vector<RunRow>& rows, const std::string& column, bool descending);

// The chosen columns of runs.
CONVSCOPE_API TextTable run_table(const std::vector<RunRow>& rows,
                                  const std::vector<std::string>& columns);
CONVSCOPE_API std::string to_markdown(const std::vector<RunRow>& rows,
                                      const std::vector<std::string>& columns);
CONVSCOPE_API std::string to_csv(const std::vector<RunRow>& rows,
                                 const std::vector<std::string>& columns);
CONVSCOPE_API std::string to_json(const std::vector<RunRow>& rows,
                                  const std::vector<std::string>& columns);

}  // namespace convscope
