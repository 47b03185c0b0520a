// SPDX-License-Identifier: Apache-2.0
// run_view.h: the progress of a run, read from its files while another process writes them. Nothing
// is written, and the run is not delayed.
#pragma once

#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/run_folder/run_folder.h"
#include "experiments/run_folder/run_summary.h"

namespace convscope {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct RunView {
  std::string path, name, id;
  RunStatus status;  // state STARTING: the folder exists, but no status yet
  std::optional<RunSummary> summary;
  std::int64_t epoch = 0, epochs = 0;            // current one, from 1; planned, 0: unknown
  std::int64_t step = 0, steps = 0;              // finished; total, 0: unknown
  double loss = kUnknown, train_acc = kUnknown;  // over the last steps
  double test_iou = kUnknown;                    // %, the last one
  double images_per_s = kUnknown;
  double seconds = kUnknown, seconds_left = kUnknown;
  double heartbeat_age = kUnknown;                       // s since the last sign of life
  std::vector<std::pair<double, double>> losses;         // step, loss
  std::vector<std::pair<double, double>> test_accuracy;  // epoch, %
  std::vector<std::string> log;                          // its last lines

  bool is_going() const { return status.state == "RUNNING" || status.state == "STARTING"; }
};

class CONVSCOPE_API RunReader {
 public:
  explicit RunReader(std::string path);
  // Reads what is new since the last call.
  const RunView& look();

 private:
  void read_status();
  void read_metrics();
  void read_epochs();
  void estimate();

  RunView view_;
  std::int64_t steps_per_epoch_ = 0;  // as expected from the config; 0: unknown
  std::uintmax_t metrics_read_ = 0;   // bytes
  double last_row_s_ = kUnknown;      // run seconds at the last line of metrics.jsonl
  std::filesystem::file_time_type status_time_{}, summary_time_{}, epochs_time_{}, log_time_{};
};

}  // namespace convscope
