// SPDX-License-Identifier: Apache-2.0
// sparse_form.cpp: decides whether a compiled step uses block_sparse for one direction of a layer.
#include "layers/plan/sparse_form.h"

#include <fmt/format.h>

#include <cmath>

#include "framework/machine/peaks.h"

namespace convscope {
namespace {

// Estimates the time in which a training step gathers the blocks before a call, or scatters their
// gradient after the call: the moved bytes divided by the machine's bandwidth.
double copying_ms(const SparseWeights& sparse, Direction direction, Device device) {
  constexpr double kLine = 16;  // floats of a cache line, which is always read as a whole
  const auto stored = static_cast<double>(sparse.format().stored_elements());
  const double all = stored / std::max(sparse.density(), 1e-9);
  const double blocks_in_line =
      std::max(1.0, kLine / static_cast<double>(sparse.format().block_columns));
  const double seen = 1 - std::pow(1 - std::min(1.0, sparse.density()), blocks_in_line);
  const bool clears = direction == Direction::backward_weight;  // zeroes all of dw first
  const double floats = clears ? 2 * all + stored : seen * all + 2 * stored;
  const MachinePeaks machine = machine_peaks(device.type);
  return 1e3 * (sizeof(float) * floats / machine.bytes_per_second +
                (clears ? 2 : 1) * machine.launch_seconds);
}

}  // namespace

SparseForm sparse_form(const SparseWeights& sparse, const Conv2dProblem& problem,
                       Direction direction, Device device, WeightUse use, double dense_ms) {
  if (!sparse.obstacle().empty()) return {.why_dense = sparse.obstacle()};
  const Conv2dAlgorithm* const algorithm = conv2d_algorithms(device.type).find(kSparseAlgorithm);
  if (algorithm == nullptr) return {.why_dense = cat("there is no ", kSparseAlgorithm, " here")};
  if (direction == Direction::backward_weight && sparse.wants_dense_gradient()) {
    return {.why_dense = kWantsDenseGradient};
  }
  Conv2dProblem blocks = problem;
  blocks.weight_format = sparse.format();
  if (const Support support = support_of(*algorithm, blocks, direction); !support.yes) {
    return {.why_dense = cat(kSparseAlgorithm, " ", support.reason)};
  }
  double sparse_ms = estimated_ms(*algorithm, blocks, direction, use);
  if (use == WeightUse::once) sparse_ms += copying_ms(sparse, direction, device);
  if (sparse_ms < dense_ms) return {.algorithm = algorithm, .ms = sparse_ms};
  return {.why_dense = fmt::format("at density {:.2f} {} is estimated at {:.2f} of its time",
                                   sparse.density(), kSparseAlgorithm, sparse_ms / dense_ms)};
}

void plan_with_mask(Graph& graph, const Ref<SparseWeights>& sparse) {
  sparse->refresh();
  graph.valid_while([sparse, version = sparse->version()] {
    return sparse->version() == version && sparse->is_current();
  });
}

}  // namespace convscope
