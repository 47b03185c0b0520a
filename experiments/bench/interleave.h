// SPDX-License-Identifier: Apache-2.0
// interleave.h: times several things in one process, interleaved, so that a disturbance of the
// machine affects all of them.
//
// A measurement consists of rounds. Each thing has a turn in as many rounds as fill its time
// budget; these rounds are spread evenly. With warm caches, a turn begins with one uncounted run,
// because other things have used the caches since the last turn; a few counted runs follow. With
// cold caches, the caches are flushed before every run. If one run is too short for the clock, a
// sample consists of several runs.
#pragma once

#include <functional>
#include <vector>

#include "framework/export.h"

namespace convscope {

// Functions that are called between the runs of a thing, so that it cannot reuse results
// (moving_inputs.h).
struct BetweenRuns {
  std::function<void()> turn;            // before each turn, not timed
  std::function<void()> sample;          // before each sample, not timed
  std::function<void()> run;             // between runs of a sample; timed: takes nanoseconds
  std::function<void(bool last)> after;  // after each turn: checks the result
};

struct TimedThing {
  std::function<void()> run;    // returns when the work is done
  double estimate_seconds = 0;  // of one run
  std::vector<double> seconds;  // output: one entry per sample, time of one run
  BetweenRuns between = {};
};

struct InterleaveOptions {
  double min_seconds = 0.2;     // counted time of each thing, if `most_samples` permits
  int least_samples = 5;        // of each thing
  int most_samples = 2000;      // of each thing
  bool cold = false;            // flush the caches before each run
  bool cpu_clock = false;       // this thread's CPU time: for one thread on a busy machine
  std::size_t cache_bytes = 0;  // size of the last-level cache, which `cold` flushes
};

CONVSCOPE_API void time_interleaved(std::vector<TimedThing>& things,
                                    const InterleaveOptions& options);

}  // namespace convscope
