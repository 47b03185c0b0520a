// SPDX-License-Identifier: Apache-2.0
// ladder_bench.h: times the rungs of one ladder (layers/conv2d/ladder.h), which shows the gain of
// each idea between the lesson and the fastest algorithm.
//
// Every rung's result is checked first. Then all rungs are timed interleaved (interleave.h). A rung
// that cannot run on this machine or problem is left out, with the reason. The factor of a rung
// refers to the nearest timed rung below it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "experiments/bench/statistics.h"
#include "framework/machine/peaks.h"
#include "layers/conv2d/ladder.h"

namespace convscope {

struct LadderOptions {
  Device device = {};
  bool cold = false;         // flush the caches before each run
  bool cpu_clock = false;    // for one thread on a busy machine
  double min_seconds = 0.2;  // counted time of each rung
  int least_samples = 5;
  std::size_t cache_bytes = std::size_t{64} << 20;  // of the last level
  // Measured peaks for the current instruction set; a rung on the CPU uses the peak of its thread
  // count.
  std::optional<CpuPeaks> peaks = {};
  // Peak of a GPU; 0: unknown.
  double flops_per_second = 0;
  double tf32_flops_per_second = 0;  // for rungs that round operands to TF32
};

struct LadderRow {
  std::string rung = {};  // "winograd_f2x3, avx2, 1 thread"
  std::string algorithm = {};
  std::string isa = {};        // the instruction set that it used; "" on a GPU
  std::string asked_isa = {};  // the instruction set that the ladder names
  int threads = 0;
  MathMode math = MathMode::f32;
  bool prepares_each_call = false;
  std::string adds = {};      // a sentence
  std::string left_out = {};  // why it was not timed, or ""
  bool wrong = false;         // it was not timed because its result is wrong
  TimingSummary time = {};
  double gflops_effective = 0, gflops_executed = 0;
  double peak_percent = 0;      // gflops_executed / peak of the rung's threads; 0: unknown
  double factor = 0;            // time of the rung below / time of this rung; 0: none below
  double error_ratio = 0;       // error / allowed error
  std::string impossible = {};  // why its time is too short for the work, or ""

  bool timed() const { return time.samples > 0 && impossible.empty(); }
};

struct CONVSCOPE_API LadderResult {
  std::string name = {};
  Conv2dProblem problem = {};
  Direction direction = Direction::forward;
  double peak_gflops = 0;  // measured peak of all threads in the problem's type; 0: unknown
  std::vector<LadderRow> rows = {};
  std::optional<double> cores_of_others = {};  // cores busy with other programs

  const LadderRow* first() const;    // first timed rung, or null
  const LadderRow* fastest() const;  // or null
  double total_factor() const;       // time of the first / time of the fastest; 0 without a time
};

// Returns the ladders that `text` names for the device: "all", or names joined by commas. Throws an
// error of kind kUnavailable that lists the ladders if a name is unknown.
CONVSCOPE_API std::vector<const Conv2dLadder*> ladders_named(const std::string& text,
                                                             Device device);

// Calls `progress` with a short text before each step that may take a while.
CONVSCOPE_API LadderResult bench_ladder(const Conv2dLadder& ladder, const Conv2dProblem& problem,
                                        Direction direction, const LadderOptions& options,
                                        const std::function<void(const std::string&)>& progress);

}  // namespace convscope
