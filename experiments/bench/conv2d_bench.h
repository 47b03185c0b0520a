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

#include "experiments/bench/bench_rows.h"
#include "experiments/bench/peer.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

struct Conv2dBenchOptions : BenchSettings {
  std::vector<Conv2dProblem> problems;
  std::vector<Direction> directions;
  std::vector<const Conv2dAlgorithm*> algorithms;
  const ConvscopePeer* peer = nullptr;
};

using Conv2dBenchRow = BenchRow;

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

struct CONVSCOPE_API PeerBenchRows {
  std::string peer = "peer";  // what its rows are called: "onednn 3.2.0"
  std::vector<PeerBenchRow> peer_rows;

  // The peer's fastest of one layout, or null.
  const PeerBenchRow* best_peer(bool plain) const;
};

struct Conv2dBenchGroup : BenchGroup<Conv2dProblem>, PeerBenchRows {};

// The algorithms that `text` names: "all" (but for the reference, the oracle of all checks), "auto"
// or names joined by commas; an error of kind kUnavailable with the nearest name otherwise.
CONVSCOPE_API std::vector<const Conv2dAlgorithm*> algorithms_named(const std::string& text,
                                                                   Device device);

// An error when the problem's elements are neither f32 nor, on cuda, f16 or bf16 (with weights of
// f32 where channels come last), nor integers with weights of i8.
CONVSCOPE_API void check_can_be_timed(const Conv2dProblem& problem, Device device);

// Calls `progress` with a short text before each step that may take a while.
CONVSCOPE_API Conv2dBenchGroup
bench_conv2d(const Conv2dBenchOptions& options, const Conv2dProblem& problem, Direction direction,
             const std::function<void(const std::string&)>& progress);

}  // namespace convscope
