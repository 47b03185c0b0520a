// SPDX-License-Identifier: Apache-2.0
// device_timing.h: times work on an asynchronous device, interleaved, by marks in its queue (CUDA:
// events), so host time does not count.
//
// Warm: a few consecutive runs are recorded once (CUDA: a graph) and replayed, so the gaps between
// launches are those of a captured training step. Cold: before each run the device writes more
// bytes than its cache holds; the run is then launched kernel by kernel.
#pragma once

#include <vector>

#include "experiments/bench/interleave.h"
#include "framework/device.h"

namespace convscope {

// Measures `things`, whose `run` only queues work. Devices without recordings launch it every time.
CONVSCOPE_API void time_on_device(std::vector<TimedThing>& things, Device device,
                                  const InterleaveOptions& options);

}  // namespace convscope
