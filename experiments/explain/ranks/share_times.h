// SPDX-License-Identifier: Apache-2.0
// share_times.h: runs training steps on random images. Measures how long one process takes for its
// share of a batch, and when in the backward pass each bucket of gradients is complete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "experiments/config/experiment_config.h"
#include "experiments/explain/ranks/sum_model.h"

namespace convscope {

struct ShareTimes {
  std::int64_t images = 0;  // images of one process in a step
  int chunks = 1;           // chunks that are computed in turn (train.deterministic_ranks)
  double step_s = 0;        // forward, loss, backward and update, without any exchange
  double backward_s = 0;    // backward pass of the last chunk, which overlaps with the exchange
  std::vector<Departure> departures = {};
  std::string execution = {};  // "planned", or "dynamic: <why>"
};

struct ShareTimingOptions {
  double min_seconds = 0.5;  // counted time of each share
  int least_samples = 5;
  int most_samples = 500;
  int warm_up = 3;
};

// A network and its optimiser, whose steps are timed for shares of several sizes.
class CONVSCOPE_API ShareTimer {
 public:
  // Builds the network; uses this process's number of threads. Throws an error of kind kUnavailable
  // for a network on points.
  explicit ShareTimer(const ExperimentConfig& config, const ShareTimingOptions& options = {});
  ~ShareTimer();
  ShareTimer(const ShareTimer&) = delete;
  ShareTimer& operator=(const ShareTimer&) = delete;

  std::int64_t parameters() const;
  // Measures the training steps of one process with a batch of `images` images, which the step
  // splits into `chunks` chunks.
  ShareTimes measure(std::int64_t images, int chunks);

 private:
  struct Network;
  std::unique_ptr<Network> network_;
};

}  // namespace convscope
