// SPDX-License-Identifier: Apache-2.0
// forecast.h: what a training step would take on 1, 2, 4, ... processes: measured steps of their
// shares, and a model of the network between them (sum_model.h).
//
//   step time   = the measured step of the share + what of the exchange the backward does not hide
//   images/s    = images of the whole batch / step time
//   efficiency  = images/s / (processes * images/s of one process with the whole batch)
// Another efficiency compares with the same share and no exchange: the measured step / step time.
// It shows the network alone; `network_efficiency`, in JSON.
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
  std::int64_t batch = 0;   // of all
  std::int64_t images = 0;  // of the process that has most
  double step_s = 0, compute_s = 0, exchange_s = 0, exposed_s = 0;
  double images_per_s = 0;
  double efficiency = 0, network_efficiency = 0;  // 1 is perfect
};

struct Forecast {
  std::string name, device;
  std::int64_t batch = 0;  // as the config has it
  std::int64_t parameters = 0;
  int threads = 1;  // of each process
  SumOrder order = SumOrder::any;
  ForecastQuestion question = {};
  std::vector<ShareTimes> shares = {};  // of the rows
  std::vector<ForecastRow> rows = {};
  std::string stopped = {};  // why there are fewer rows than asked for; ""
};

// 1, 2, 4, ... and `ranks` itself; those alone that can train with this batch. `stopped` says why
// others are left out. An error of kind kConfig when `ranks` asks for none of them.
CONVSCOPE_API std::vector<int> forecast_processes(const ExperimentConfig& config,
                                                  const ForecastQuestion& question,
                                                  std::string& stopped);

CONVSCOPE_API ForecastRow forecast_row(int processes, std::int64_t batch, const ShareTimes& share,
                                       const Cluster& cluster, SumOrder order);
// Sets `efficiency` by the first row, which is one process with the whole batch.
CONVSCOPE_API void set_efficiency(std::vector<ForecastRow>& rows);

// Measures; `say` gets a line before each share.
CONVSCOPE_API Forecast forecast(const ExperimentConfig& config, const ForecastQuestion& question,
                                const std::function<void(const std::string&)>& say);

// One sentence: what the last row is limited by.
CONVSCOPE_API std::string limit_text(const Forecast& forecast);
CONVSCOPE_API std::string forecast_text(const Forecast& forecast);
CONVSCOPE_API std::string forecast_json(const Forecast& forecast);

}  // namespace convscope
