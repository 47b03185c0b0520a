// SPDX-License-Identifier: Apache-2.0
// sparse_net.h: times the forward and backward pass of a network of submanifold layers on one map,
// for each algorithm. Published comparisons of sparse convolution use such networks.
//
// Layer i maps C[i] channels to C[i+1] with a 3x3x3 kernel, without bias and activation. Forward
// runs all layers in order. Backward computes dw and dx of each layer, from the last to the first.
// Weights are prepared in each call, as in training. On a GPU each network is captured once as a
// CUDA graph and replayed.
#pragma once

#include <string>
#include <vector>

#include "experiments/bench/sparse/sparse_bench.h"

namespace convscope {

struct SparseNetOptions {
  DrawnCloud cloud;
  std::vector<std::int64_t> channels = {16, 32, 32, 64, 64, 64, 64};
  std::vector<ComputePrecision> precisions = {ComputePrecision::f32};
  std::vector<std::string> algorithms = {"auto"};  // names of algorithms, or auto
  BenchSettings timing;
};

struct SparseNetRow {
  std::string algorithm;
  ComputePrecision precision = ComputePrecision::f32;
  TimingSummary forward, backward;        // without samples when a result is wrong
  double error_ratio = 0;                 // error / allowed error, the largest of all layers
  std::string wrong;                      // why it was not timed, or ""
  std::size_t workspace_bytes = 0;        // of the layer that needs most, prepared weights included
  std::vector<std::string> kernels = {};  // that ran: "16-32: halo, halo, native" (forward, dx, dw)
};

struct SparseNetRefusal {
  std::string algorithm;
  ComputePrecision precision = ComputePrecision::f32;
  std::string reason;
};

struct SparseNetBench {
  std::vector<SparseNetRow> rows;
  std::vector<SparseNetRefusal> refusals;  // algorithms that are missing, and layers they refuse
};

// Measures on `on`, the 3x3x3 map of options.cloud.
CONVSCOPE_API SparseNetBench bench_sparse_net(const SparseNetOptions& options, const CloudMap& on,
                                              const BenchProgress& progress);

}  // namespace convscope
