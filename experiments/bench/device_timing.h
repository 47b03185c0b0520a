// SPDX-License-Identifier: Apache-2.0
// device_timing.h: times work on an asynchronous device, interleaved, by marks in its queue (CUDA:
// events), so host time does not count.
//
// With warm caches, a few consecutive runs are captured once (CUDA: as a graph) and replayed, so
// the gaps between kernels are as short as in a training step that is replayed. With cold caches,
// the device writes more bytes than its cache holds before each run, and the kernels of the run are
// launched one by one.
#pragma once

#include <vector>

#include "experiments/bench/interleave.h"
#include "framework/device.h"

namespace convscope {

// Measures `things`, whose `run` only queues work. A device without recordings launches the kernels
// of each run.
CONVSCOPE_API void time_on_device(std::vector<TimedThing>& things, Device device,
                                  const InterleaveOptions& options);

}  // namespace convscope
