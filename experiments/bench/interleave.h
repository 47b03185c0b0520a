// SPDX-License-Identifier: Apache-2.0
// interleave.h: times several things in one process, in turns, so that whatever disturbs the
// machine disturbs all of them.
//
// Each thing takes part in as many rounds as fill its time budget, spread evenly over the whole
// measurement. Its turn in a round, with warm caches: one run that is not counted (the others have
// used the caches since), then a few that are; with cold caches: the caches are flushed, then one
// run. Very short runs are repeated within one sample until the clock can tell.
#pragma once

#include <functional>
#include <vector>

#include "framework/export.h"

namespace convscope {

// What happens between the runs of a thing that must not find its work done (moving_inputs.h).
struct BetweenRuns {
  std::function<void()> turn;            // before each turn, not timed
  std::function<void()> sample;          // before each sample, not timed
  std::function<void()> run;             // between the runs of a sample: timed, so some nanoseconds
  std::function<void(bool last)> after;  // after each turn: is the result right?
};

struct TimedThing {
  std::function<void()> run;    // returns when the work is done
  double estimate_seconds = 0;  // of one run
  std::vector<double> seconds;  // out: one entry for each sample, time of one run
  BetweenRuns between = {};
};

struct InterleaveOptions {
  double min_seconds = 0.2;     // counted time of each thing, as far as `most_samples` allows
  int least_samples = 5;        // of each thing
  int most_samples = 2000;      // of each thing
  bool cold = false;            // flush the caches before each run
  bool cpu_clock = false;       // this thread's CPU time: for one thread on a busy machine
  std::size_t cache_bytes = 0;  // of the last level; how much must be written to flush it
};

CONVSCOPE_API void time_interleaved(std::vector<TimedThing>& things,
                                    const InterleaveOptions& options);

}  // namespace convscope
