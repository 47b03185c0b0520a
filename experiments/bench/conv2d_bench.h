// SPDX-License-Identifier: Apache-2.0
// conv2d_bench.h: measures convolution algorithms, and another library beside them.
//
// For each problem and direction: every algorithm's result is checked (sampled_reference.h), those
// that are right are timed in turns with the peer's variants (interleave.h), and the times are set
// against the machine's measured ceilings.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/bench/peer.h"
#include "experiments/bench/statistics.h"
#include "framework/machine/ceilings.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

struct Conv2dBenchOptions {
  std::vector<Conv2dProblem> problems;
  std::vector<Direction> directions;
  std::vector<const Conv2dAlgorithm*> algorithms;
  bool only_auto = false;  // of `algorithms`, time what `auto` chooses
  Device device;
  const ConvscopePeer* peer = nullptr;
  bool cold = false;         // flush the caches before each run
  bool cpu_clock = false;    // CPU time instead of wall time: for one thread on a busy machine
  double min_seconds = 0.2;  // counted time of each algorithm on each problem
  int least_samples = 5;
  std::optional<CpuCeilings> ceilings;  // without: no percentage of the roofline
};

// One algorithm on one problem in one direction.
struct Conv2dBenchRow {
  std::string algorithm;
  bool auto_choice = false;  // `auto` would have chosen it
  // Of a whole call, weights prepared anew; GFLOP/s and roofline are of it, so nothing is hidden. Of
  // no samples when the result is wrong.
  TimingSummary time;
  // Of that, the preparation of the weights: median, timed by itself. 0 when the card prepares none.
  // A planned inference pays it once, so its calls take about median_ms - prepare_ms.
  double prepare_ms = 0;
  double gflops_effective = 0;
  double gflops_executed = 0;
  double roofline_percent = 0;
  std::size_t workspace_bytes = 0;  // of a call, prepared weights included
  std::size_t prepared_bytes = 0;
  double error_ratio = 0;  // error / allowed error
  std::string wrong;       // why it was not timed; "" when it was
};

// One way of the peer to compute the same.
struct PeerBenchRow {
  std::string algorithm;       // "direct", "winograd", ...
  bool plain = false;          // from and to row-major tensors, conversions included
  std::string implementation;  // "jit:avx512_core"
  TimingSummary time;
  double gflops_effective = 0;
  std::size_t workspace_bytes = 0;
  double error_ratio = 0;
  std::string wrong;
};

struct BenchRefusal {
  std::string who;  // an algorithm, or "onednn winograd"
  std::string reason;
};

struct CONVSCOPE_API Conv2dBenchGroup {
  Conv2dProblem problem;
  Direction direction = Direction::forward;
  int threads = 0;
  std::vector<Conv2dBenchRow> rows;  // right ones by time, then wrong ones
  std::vector<PeerBenchRow> peer_rows;
  std::vector<BenchRefusal> refusals;
  std::string skipped;  // why nothing was run, or ""

  // The peer's fastest of one layout, or null.
  const PeerBenchRow* best_peer(bool plain) const;
};

// The algorithms that `text` names: "all" (but for the reference, the oracle of all checks), "auto"
// or names joined by commas; an error of kind kUnavailable with the nearest name otherwise.
CONVSCOPE_API std::vector<const Conv2dAlgorithm*> algorithms_named(const std::string& text,
                                                                   Device device);

// An error when the problem's elements are neither f32 nor, on cuda, f16 or bf16.
CONVSCOPE_API void check_can_be_timed(const Conv2dProblem& problem, Device device);

// Calls `progress` with a short text before each step that may take a while.
CONVSCOPE_API Conv2dBenchGroup
bench_conv2d(const Conv2dBenchOptions& options, const Conv2dProblem& problem, Direction direction,
             const std::function<void(const std::string&)>& progress);

// Flop/s and byte/s turned into the least time of the work, in seconds: its FLOPs at the peak or
// its tensors, each once, from the level that holds them all, whichever takes longer.
CONVSCOPE_API double roofline_seconds(const CpuCeilings& ceilings, double flops, double bytes,
                                      int threads, bool cold);

}  // namespace convscope
