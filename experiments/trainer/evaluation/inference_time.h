// SPDX-License-Identifier: Apache-2.0
// inference_time.h: measures the inference of a trained network and names its kernels. The network
// is executed as it is deployed: in integers, with block-sparse kernels, or as a smaller dense
// network.
//
//   time      that of one batch in the network only, without loss and loader. On a device that
//             records steps (recorded_steps.h), that of a recorded evaluation step, which includes
//             the gathering of the batch and the loss
//   batches   a few full batches of the loader in turn, loaded in advance
//   noise     the median of many batches after a few warm-up batches. Other work on the machine
//             changes the mean, and the minimum may be luck; the median is stable
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

// Measures in eval mode without a graph and restores the mode. plans: as in TrainStep. `recorded`:
// steps of an evaluation with this loader, or null. Returns nothing when the loader has no full
// batch. Takes about 0.25 s, or longer if a few batches take longer.
CONVSCOPE_API std::optional<InferenceTime> measure_inference(Module& model, Loader& loader,
                                                             Device device, bool plans,
                                                             RecordedSteps* recorded = nullptr);

}  // namespace convscope
