// SPDX-License-Identifier: Apache-2.0
// run_data.h: the contents of all files of a run folder, for plots and reports. Reading never
// throws: a missing file is empty, and defects are listed in `problems`.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/report/csv_table.h"
#include "experiments/run_folder/run_summary.h"

namespace convscope {

// A line of metrics.jsonl with split "train"; NaN means a missing value.
struct TrainPoint {
  double step = 0, loss = 0, accuracy = 0, learning_rate = 0, images_per_s = 0;
};

struct CONVSCOPE_API RunData {
  std::string path, id, name;
  std::string state, reason;                  // from status.json
  std::map<std::string, std::string> config;  // config.yaml, flat_config()
  std::optional<RunSummary> summary;          // none before the first summary.json
  std::vector<TrainPoint> train;
  CsvTable epochs, layers, sparsity, quant, confusion;
  std::vector<std::string> problems;  // "epochs.csv:7: expected ..."

  // Returns the training steps per epoch, or 0 when no epoch is finished.
  double steps_per_epoch() const;
};

CONVSCOPE_API RunData read_run(const std::string& folder);

}  // namespace convscope
