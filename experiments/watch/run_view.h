// SPDX-License-Identifier: Apache-2.0
// run_view.h: how far a run is, read from its files while another process writes them. Nothing is
// written, and the run is not held up.
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
  RunStatus status;  // state STARTING: its folder is there, its first status is not
  std::optional<RunSummary> summary;
  std::int64_t epoch = 0, epochs = 0;            // the one it is in, from 1; planned, 0: unknown
  std::int64_t step = 0, steps = 0;              // done so far; in all, 0: unknown
  double loss = kUnknown, train_acc = kUnknown;  // of the last steps
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
  // Reads what is new since the last look.
  const RunView& look();

 private:
  void read_status();
  void read_metrics();
  void read_epochs();
  void estimate();

  RunView view_;
  std::int64_t steps_per_epoch_ = 0;  // as the config lets expect; 0: unknown
  std::uintmax_t metrics_read_ = 0;   // bytes
  double last_row_s_ = kUnknown;      // run seconds of the last line of metrics.jsonl
  std::filesystem::file_time_type status_time_{}, summary_time_{}, epochs_time_{}, log_time_{};
};

}  // namespace convscope
