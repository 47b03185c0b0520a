// SPDX-License-Identifier: Apache-2.0
// measure.h: the policy "measure": time every algorithm that accepts a problem, remember the
// fastest, in this process and on disk.
//
// The file is <operation>_<device>.json in the cache folder (framework/machine/machine.h). Its keys
// name the CPU, the instruction set and the number of threads, or the GPU and its driver, then the
// direction and the problem, so one file serves several machines. Where a candidate came out of a
// plug-in, the key names its file by a hash: another build of it is measured anew, and a program
// without it keeps its own answers. A file that cannot be read or is
// not ours is ignored with a warning and written anew; one that cannot be written is a warning
// only.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "layers/dispatch/run.h"

namespace convscope {

// What the answer is remembered for.
struct MeasureKey {
  const char* operation;
  std::string problem;
  Direction direction;
  Device device;
  WeightUse use = WeightUse::once;
  std::string plugins = {};  // of the candidates: what they were is a part of the answer
};

// The remembered name, or "": never runs anything.
CONVSCOPE_API std::string remembered_fastest(const MeasureKey& key);
// The remembered one if `candidates` has it, else the one with the lowest seconds, which is then
// remembered. Timing starts when `timing` is called, and only for two or more candidates. Two
// threads never time at once.
using SecondsOf = std::function<double(const std::string& name)>;
CONVSCOPE_API std::string measured_fastest(const MeasureKey& key,
                                           const std::vector<std::string>& candidates,
                                           const std::function<SecondsOf()>& timing);
// Best of 5 to 50 runs, about 50 ms in all, after one warm-up. On a device with recordings: best of
// up to 5 replays of a recording of several runs, timed by marks, so that no time of the host is
// counted; about 5 ms in all. One that takes more than `enough` at once is not timed further.
CONVSCOPE_API double best_seconds(const std::function<void()>& run, Device device,
                                  double enough = 1e300);
// What the policy answered in this process, by operation, device, direction and problem, whatever
// the processor is; and answers of an earlier process that come before all that is remembered, so
// that a run which goes on keeps its algorithms.
CONVSCOPE_API std::map<std::string, std::string> given_answers();
CONVSCOPE_API void take_over_answers(const std::map<std::string, std::string>& answers);
// Forgets what this process remembers, so that the file is read again. For tests.
CONVSCOPE_API void forget_measured();
CONVSCOPE_API std::string measure_cache_path(const char* operation, Device device);

// Seconds of one run of each named algorithm, all on the same random numbers; the preparation of
// the weights counts when they are used once. A run that takes three times as long as the best
// before it, and a tenth of a millisecond more, which the host may have taken, has lost.
template <class Problem>
SecondsOf timing_of(const Problem& problem, Direction direction, Device device, WeightUse use) {
  const Operands operands = repeated_operands(problem.operands(direction), device);
  return [problem, direction, device, use, operands,
          best = 1e100](const std::string& name) mutable {
    const Card<Problem>& card = HeavyLayer<Problem>::algorithms(device.type).get(name);
    const Scratch<Problem> scratch(card, problem, direction, device, use);
    const double enough = 3 * best + 1e-4;
    double seconds = 0;
    if (use == WeightUse::once) {
      seconds = best_seconds([&] { run_card(card, problem, direction, operands, scratch); }, device,
                             enough);
    } else {
      const void* const prepared = prepared_weights(problem, direction, operands, scratch);
      seconds =
          best_seconds([&] { run_prepared(card, problem, direction, operands, scratch, prepared); },
                       device, enough);
    }
    best = std::min(best, seconds);
    return seconds;
  };
}

}  // namespace convscope
