// SPDX-License-Identifier: Apache-2.0
// inference_time.h: how long inference of a trained network takes as it is really executed (codes,
// blocks of weights, a smaller dense network), and by which kernels.
//
//   time      of one batch: the network alone, without loss and loader. On a device that records
//             steps (recorded_steps.h) of a recorded evaluation step: gathering the batch and the
//             loss are in it
//   batches   full ones of the loader, a few of them in turn; they lie ready
//   noise     the median of many batches after a few that are left out. Other work of the machine
//             moves the mean and the smallest value may be luck; the median stays
// Usage   if (const auto time = measure_inference(model, *test, device, /*plans=*/true)) ...
#pragma once

#include <optional>

#include "datasets/loader.h"
#include "experiments/run_folder/step_kernels.h"
#include "experiments/trainer/recorded_steps.h"

namespace convscope {

struct InferenceTime {
  double batch_s = 0;  // median
  StepKernels kernels;
};

// In eval mode and without a graph; the mode is put back. plans: as in TrainStep. `recorded`: of an
// evaluation with this loader, or null. Nothing when the loader has no full batch. About a quarter
// of a second, or a few batches where they take longer.
CONVSCOPE_API std::optional<InferenceTime> measure_inference(Module& model, Loader& loader,
                                                             Device device, bool plans,
                                                             RecordedSteps* recorded = nullptr);

}  // namespace convscope
