// SPDX-License-Identifier: Apache-2.0
// measure.h: the policy "measure": times every algorithm that accepts a problem and remembers the
// fastest, in this process and on disk.
//
// The file is <operation>_<device>.json in the cache folder (framework/machine/machine.h). A key
// consists of the CPU, the instruction set and the number of threads, or of the GPU and its driver,
// then of the direction and the problem. So one file serves several machines. If a candidate comes
// from a plug-in, the key also has a hash of the plug-in's file: another build of the plug-in is
// timed again, and a program without the plug-in keeps its answers. A file that cannot be read, or
// has another format, is ignored with a warning and rewritten. A file that cannot be written causes
// only a warning.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "layers/dispatch/run.h"

namespace convscope {

// The key of a remembered answer.
struct MeasureKey {
  const char* operation;
  std::string problem;
  Direction direction;
  Device device;
  WeightUse use = WeightUse::once;
  std::string plugins = {};  // of the candidates: the answer depends on their builds
};

// Returns the remembered name, or "". Never runs anything.
CONVSCOPE_API std::string remembered_fastest(const MeasureKey& key);
// Returns the remembered name if `candidates` contains this name. Otherwise returns and remembers
// the candidate with the fewest seconds. A single candidate is not timed, so `timing` is called
// only if there are two or more. Two threads never time at once.
using SecondsOf = std::function<double(const std::string& name)>;
CONVSCOPE_API std::string measured_fastest(const MeasureKey& key,
                                           const std::vector<std::string>& candidates,
                                           const std::function<SecondsOf()>& timing);
// Returns the seconds of the fastest of 5 to 50 runs, about 50 ms in all, after one warm-up. If the
// device supports recordings (CUDA graphs), several runs are recorded and replayed up to 5 times,
// about 5 ms in all. Events time the replays, so the time of the host is not included. A run that
// takes more than `enough` seconds is not timed again, except where launches by the host may be
// most of its time.
CONVSCOPE_API double best_seconds(const std::function<void()>& run, Device device,
                                  double enough = 1e300);
// Returns the answers that the policy has given in this process. Their keys hold operation, device,
// direction and problem, but not the processor. take_over_answers() sets the answers of an earlier
// process, which take precedence over the file. So a resumed run keeps its algorithms.
CONVSCOPE_API std::map<std::string, std::string> given_answers();
CONVSCOPE_API void take_over_answers(const std::map<std::string, std::string>& answers);
// Forgets what this process remembers, so that the file is read again. For tests only.
CONVSCOPE_API void forget_measured();
CONVSCOPE_API std::string measure_cache_path(const char* operation, Device device);

// Returns the seconds of one run of each named algorithm, all on the same random numbers. Preparing
// the weights is included when they are used once. An algorithm is dropped when a run takes more
// than three times the best so far plus 0.1 ms, which allows for noise of the host.
template <class Problem>
SecondsOf timing_of(const Problem& problem, Direction direction, Device device, WeightUse use) {
  const Operands operands = repeated_operands(problem.operands(direction), device);
  return [problem, direction, device, use, operands,
          best = 1e100](const std::string& name) mutable {
    const Algorithm<Problem>& algorithm = Operator<Problem>::algorithms(device.type).get(name);
    const Scratch<Problem> scratch(algorithm, problem, direction, device, use);
    const double enough = 3 * best + 1e-4;
    double seconds = 0;
    if (use == WeightUse::once) {
      seconds = best_seconds(
          [&] { run_algorithm(algorithm, problem, direction, operands, scratch); }, device, enough);
    } else {
      const void* const prepared = prepared_weights(problem, direction, operands, scratch);
      seconds = best_seconds(
          [&] { run_prepared(algorithm, problem, direction, operands, scratch, prepared); }, device,
          enough);
    }
    best = std::min(best, seconds);
    return seconds;
  };
}

}  // namespace convscope
