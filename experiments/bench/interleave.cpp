// SPDX-License-Identifier: Apache-2.0
// interleave.cpp: times several things in one process, interleaved, so that a disturbance of the
// machine affects all of them.
#include "experiments/bench/interleave.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "framework/int_math.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr double kShortestSample = 20e-6;  // seconds; a clock reading costs about 25 ns
// A run that takes longer than this (seconds) needs no warm-up, because filling 32 MiB of cache
// takes only about a millisecond of the run.
constexpr double kWarmUpPays = 0.05;

// Flushing takes several milliseconds, however short the run.
constexpr int kMaxColdSamples = 40;

// The schedule of one thing.
struct Part {
  int samples = 0;   // in all turns
  int per_turn = 1;  // samples per turn
  int repeats = 1;   // runs per sample
  bool warm_up = false;
  int turns() const { return ceil_div(samples, per_turn); }
};

Part part_of(const TimedThing& thing, const InterleaveOptions& options) {
  const double one = std::max(thing.estimate_seconds, 1e-9);
  Part part;
  if (!options.cold) {
    part.repeats = static_cast<int>(std::clamp(std::ceil(kShortestSample / one), 1.0, 1e4));
    part.warm_up = one < kWarmUpPays;
    part.per_turn = one < 2e-3 ? 4 : one < kWarmUpPays ? 2 : 1;
  }
  const int most =
      options.cold ? std::min(options.most_samples, kMaxColdSamples) : options.most_samples;
  const double wanted = std::ceil(options.min_seconds / (one * part.repeats));
  part.samples =
      static_cast<int>(std::clamp(wanted, static_cast<double>(options.least_samples),
                                  static_cast<double>(std::max(most, options.least_samples))));
  return part;
}

// Writes and reads more than the last-level cache holds.
class CacheFlush {
 public:
  explicit CacheFlush(std::size_t cache_bytes) {
    constexpr std::size_t kLeast = std::size_t{64} << 20;
    lines_.resize(std::max(2 * cache_bytes, kLeast) / sizeof(Line));
  }
  void operator()() {
    parallel_for(static_cast<std::int64_t>(lines_.size()), 1 << 14,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     lines_[static_cast<std::size_t>(i)].words[0] += 1;
                   }
                 });
  }

 private:
  struct Line {
    std::int64_t words[8];
  };
  std::vector<Line> lines_;
};

double now(bool cpu_clock) {
  timespec time{};
  clock_gettime(cpu_clock ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const TimedThing& thing, int repeats, bool cpu_clock) {
  const double begin = now(cpu_clock);
  for (int i = 0; i < repeats; ++i) {
    if (i > 0 && thing.between.run) thing.between.run();
    thing.run();
  }
  return (now(cpu_clock) - begin) / repeats;
}

}  // namespace

void time_interleaved(std::vector<TimedThing>& things, const InterleaveOptions& options) {
  std::vector<Part> parts;
  std::int64_t rounds = 0;
  for (const TimedThing& thing : things) {
    parts.push_back(part_of(thing, options));
    rounds = std::max<std::int64_t>(rounds, parts.back().turns());
  }
  std::optional<CacheFlush> flush;
  if (options.cold) flush.emplace(options.cache_bytes);
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < things.size(); ++i) {
      const Part& part = parts[i];
      // A thing with fewer turns than there are rounds skips some rounds: its turn t is in round
      // floor(t rounds / turns).
      if ((round + 1) * part.turns() / rounds == round * part.turns() / rounds) continue;
      const BetweenRuns& between = things[i].between;
      if (between.turn) between.turn();
      if (part.warm_up) things[i].run();
      for (int sample = 0; sample < part.per_turn; ++sample) {
        if (between.sample) between.sample();
        if (flush) (*flush)();
        things[i].seconds.push_back(seconds_of(things[i], part.repeats, options.cpu_clock));
      }
      if (between.after) between.after(round + 1 == rounds);
    }
  }
}

}  // namespace convscope
