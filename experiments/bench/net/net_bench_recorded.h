// SPDX-License-Identifier: Apache-2.0
// net_bench_recorded.h: times a whole network on a device that records its kernels: the device time
// of one run without host delays, by marks around launches of several runs.
#pragma once

#include "experiments/bench/net/net_bench.h"
#include "layers/plan/step_plan.h"

namespace convscope {

// Returns seconds of one inference, many samples.
std::vector<double> recorded_inference_seconds(StepPlan& plan, const Tensor& x,
                                               const NetBenchOptions& options);

// Fills time, execution and memory of a row of training steps, recorded as in the trainer, on
// random images in device memory. Returns "" or why they cannot be recorded.
std::string time_recorded_training(const ExperimentConfig& config, Module& model, int classes,
                                   const NetBenchOptions& options, NetBenchRow& row);

}  // namespace convscope
