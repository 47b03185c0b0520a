// SPDX-License-Identifier: Apache-2.0
// net_bench_recorded.h: times a whole network on a device that can capture its kernels (CUDA: as a
// graph). Marks in the device's queue around several replayed runs give the time of one run without
// host delays.
#pragma once

#include "experiments/bench/net/net_bench.h"
#include "layers/plan/step_plan.h"

namespace convscope {

// Returns samples of the time of one inference, in seconds.
std::vector<double> recorded_inference_seconds(StepPlan& plan, const Tensor& x,
                                               const NetBenchOptions& options);

// Measures training steps on random images in device memory. The steps are captured and replayed as
// in the trainer. Sets time, execution and memory of the row. Returns "", or why the steps cannot
// be captured.
std::string time_recorded_training(const ExperimentConfig& config, Module& model, int classes,
                                   const NetBenchOptions& options, NetBenchRow& row);

}  // namespace convscope
