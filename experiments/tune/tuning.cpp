// SPDX-License-Identifier: Apache-2.0
// tuning.cpp: times the algorithms of an operator in turns.
#include "experiments/tune/tuning.h"

#include <algorithm>
#include <chrono>

namespace convscope {
namespace {

// Returns the seconds of the fastest of a few runs, about 2 ms in all.
double fastest_of_some(const std::function<void()>& run) {
  double best = 1e300, total = 0;
  for (int i = 0; i < 20 && (i == 0 || total < 2e-3); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    total += seconds.count();
    best = std::min(best, seconds.count());
  }
  return best;
}

}  // namespace

void Tuning::time_in_turns(std::vector<Timed>& timed) {
  if (device_.type != DeviceType::cpu) {  // replays of recordings: no other process disturbs them
    double fastest = 1e300;
    for (Timed& one : timed) {
      one.sample.seconds = best_seconds(one.run, device_, 4 * fastest + 1e-5);
      fastest = std::min(fastest, one.sample.seconds);
      samples_.push_back(std::move(one.sample));
    }
    return;
  }
  constexpr int kTurns = 4;
  constexpr double kHopeless = 4;  // times the fastest: two turns are enough
  double fastest = 1e300;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (Timed& one : timed) {
      if (turn > 1 && one.sample.seconds > kHopeless * fastest) continue;
      const double seconds = fastest_of_some(one.run);
      one.sample.seconds = turn == 0 ? seconds : std::min(one.sample.seconds, seconds);
      fastest = std::min(fastest, seconds);
    }
  }
  for (Timed& one : timed) samples_.push_back(std::move(one.sample));
}

}  // namespace convscope
