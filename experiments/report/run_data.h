// SPDX-License-Identifier: Apache-2.0
// run_data.h: all that the files of a run folder say, for plots and reports. Reading never throws:
// a file that is missing is empty, and what is broken in one is named in `problems`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/csv_table.h"
#include "experiments/run_folder/run_summary.h"

namespace convscope {

// A line of metrics.jsonl with split "train"; NaN: it was not there.
struct TrainPoint {
  double step = 0, loss = 0, accuracy = 0, learning_rate = 0, images_per_s = 0;
};

struct CONVSCOPE_API RunData {
  std::string path, id, name;
  std::string state, reason;                  // of status.json
  std::map<std::string, std::string> config;  // config.yaml, flat_config()
  std::optional<RunSummary> summary;          // none until a first summary.json is there
  std::vector<TrainPoint> train;
  CsvTable epochs, layers, sparsity, quant;
  std::vector<std::string> problems;  // "epochs.csv:7: expected ..."

  // Training steps in an epoch, or 0 when no epoch is finished.
  double steps_per_epoch() const;
};

CONVSCOPE_API RunData read_run(const std::string& folder);

}  // namespace convscope
