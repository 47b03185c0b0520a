// SPDX-License-Identifier: Apache-2.0
// forecast.h: predicts the time of a training step on 1, 2, 4, ... processes. It measures one
// process's step on its share of the batch, and models the exchange of gradients (sum_model.h).
//
//   step time   = measured step of the share + the part of the exchange that does not overlap with
//                 the backward pass
//   images/s    = images of the whole batch / step time
//   efficiency  = images/s / (processes * images/s of one process with the whole batch)
// `network_efficiency` (JSON) divides the measured time of a step on the share, without exchange,
// by the step time above. It shows only the cost of the exchange.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/explain/ranks/share_times.h"

namespace convscope {

struct ForecastQuestion {
  int ranks = 1;
  Cluster cluster = {};
  bool keep_share = false;  // the batch grows with the processes
};

struct ForecastRow {
  int processes = 1;
  std::int64_t batch = 0;   // images of all processes in a step
  std::int64_t images = 0;  // images of the process that has the most
  double step_s = 0, compute_s = 0, exchange_s = 0, exposed_s = 0;
  double images_per_s = 0;
  double efficiency = 0, network_efficiency = 0;  // 1 is perfect
};

struct Forecast {
  std::string name, device;
  std::int64_t batch = 0;  // as in the config
  std::int64_t parameters = 0;
  int threads = 1;  // of each process
  SumOrder order = SumOrder::any;
  ForecastQuestion question = {};
  std::vector<ShareTimes> shares = {};  // of the rows
  std::vector<ForecastRow> rows = {};
  std::string stopped = {};  // why there are fewer rows than requested; ""
};

// Returns the numbers of processes for the table: those out of 1, 2, 4, ... and `ranks` that can
// train with this batch. If some cannot, sets `stopped` to the reason. Throws an error of kind
// kConfig when none can.
CONVSCOPE_API std::vector<int> forecast_processes(const ExperimentConfig& config,
                                                  const ForecastQuestion& question,
                                                  std::string& stopped);

CONVSCOPE_API ForecastRow forecast_row(int processes, std::int64_t batch, const ShareTimes& share,
                                       const Cluster& cluster, SumOrder order);
// Sets `efficiency` relative to the first row, which is one process with the whole batch.
CONVSCOPE_API void set_efficiency(std::vector<ForecastRow>& rows);

// Measures the step for each share of the batch. Before each measurement, calls `say` with a
// progress message.
CONVSCOPE_API Forecast forecast(const ExperimentConfig& config, const ForecastQuestion& question,
                                const std::function<void(const std::string&)>& say);

// Returns a sentence that says what limits the last row.
CONVSCOPE_API std::string limit_text(const Forecast& forecast);
CONVSCOPE_API std::string forecast_text(const Forecast& forecast);
CONVSCOPE_API std::string forecast_json(const Forecast& forecast);

}  // namespace convscope
