// SPDX-License-Identifier: Apache-2.0
// conv2d_bench.h: measures convolution algorithms, and another library (the baseline) with them.
//
// For each problem and direction, every result is checked (sampled_reference.h), correct algorithms
// are timed interleaved with the baseline's variants (interleave.h), and the times are compared
// with the machine's measured peaks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/bench/baseline.h"
#include "experiments/bench/bench_rows.h"
#include "layers/conv2d/algorithm.h"

namespace convscope {

struct Conv2dBenchOptions : BenchSettings {
  std::vector<const Conv2dAlgorithm*> algorithms;
  const ConvscopeBaseline* baseline = nullptr;
};

using Conv2dBenchRow = BenchRow;

// One variant of the baseline.
struct BaselineBenchRow {
  std::string algorithm;       // "direct", "winograd", ...
  bool plain = false;          // tensors are row-major; the time includes layout conversions
  std::string implementation;  // "jit:avx512_core"
  TimingSummary time;
  double gflops_effective = 0;
  std::size_t workspace_bytes = 0;
  double error_ratio = 0;
  std::string wrong;
};

struct CONVSCOPE_API BaselineBenchRows {
  std::string baseline = "baseline";  // the name in its rows: "onednn 3.2.0"
  std::vector<BaselineBenchRow> baseline_rows;

  // Returns the baseline's fastest row of one layout, or null.
  const BaselineBenchRow* best_baseline(bool plain) const;
};

struct Conv2dBenchGroup : BenchGroup<Conv2dProblem>, BaselineBenchRows {};

// Throws unless the elements of the problem have a type that can be timed. These are f32, integers
// with i8 weights, and on cuda also f16 and bf16 (with f32 weights in NHWC).
CONVSCOPE_API void check_can_be_timed(const Conv2dProblem& problem, Device device);

// Calls `progress` with a short text before each step that may take a while.
CONVSCOPE_API Conv2dBenchGroup
bench_conv2d(const Conv2dBenchOptions& options, const Conv2dProblem& problem, Direction direction,
             const std::function<void(const std::string&)>& progress);

}  // namespace convscope
