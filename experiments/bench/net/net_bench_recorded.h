// SPDX-License-Identifier: Apache-2.0
// net_bench_recorded.h: a whole network on a device that records its kernels: what the device takes
// for one run when the host stands in nobody's way, by marks around launches of several runs.
#pragma once

#include "experiments/bench/net/net_bench.h"
#include "layers/plan/step_plan.h"

namespace convscope {

// Seconds of one inference, many samples of it.
std::vector<double> recorded_inference_seconds(StepPlan& plan, const Tensor& x,
                                               const NetBenchOptions& options);

// Fills time, execution and memory of a row of training steps, recorded as the trainer does it, on
// random images that lie on the device. "" or why they cannot be recorded.
std::string time_recorded_training(const ExperimentConfig& config, Module& model, int classes,
                                   const NetBenchOptions& options, NetBenchRow& row);

}  // namespace convscope
