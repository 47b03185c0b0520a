// SPDX-License-Identifier: Apache-2.0
// device_timing.h: times things that run on a device of their own, in turns, by marks in its queue
// of work (CUDA: events), so that no time of the host is counted.
//
// Warm: a few runs in a row are recorded once (CUDA: a graph) and replayed, so the gaps between
// launches are those of a captured training step. Cold: before each run the device writes more
// bytes than its cache holds, and the run is launched kernel by kernel behind that.
#pragma once

#include <vector>

#include "experiments/bench/interleave.h"
#include "framework/device.h"

namespace convscope {

// `run` of each thing only queues its work. Devices without recordings launch it anew each time.
CONVSCOPE_API void time_on_device(std::vector<TimedThing>& things, Device device,
                                  const InterleaveOptions& options);

}  // namespace convscope
