// SPDX-License-Identifier: Apache-2.0
// algorithm.h: the arguments of the functions of a sparse convolution's algorithm, and the macro
// that registers an algorithm. The struct Algorithm is in layers/dispatch/algorithm.h.
#pragma once

#include "layers/dispatch/algorithm.h"
#include "layers/dispatch/operands.h"
#include "layers/sparse_conv/problem.h"

namespace convscope {

using SparseConvAlgorithm = Algorithm<SparseConvProblem>;

// The arguments of a forward call. The caller has checked the sizes. Arrays have the element type
// of the problem and are on the algorithm's device. The workspace has workspace_bytes() bytes and
// is 64-byte aligned. There is at least one output site; there may be no input site.
struct SparseConvForwardArgs {
  const SparseConvProblem& problem;
  const void* x;  // [n,C]
  const void* w;  // [K,C,(T,)R,S]
  const void* b;  // [K], or null
  void* y;        // [m,K], assigned
  void* workspace;
  const void* prepared = nullptr;  // weights packed by prepare_weights, or null
};
struct SparseConvBackwardDataArgs {
  const SparseConvProblem& problem;
  const void* dy;  // [m,K]
  const void* w;   // [K,C,(T,)R,S]
  void* dx;        // [n,C], assigned
  void* workspace;
  const void* prepared = nullptr;
};
struct SparseConvBackwardWeightArgs {
  const SparseConvProblem& problem;
  const void* x;   // [n,C]
  const void* dy;  // [m,K]
  void* dw;        // [K,C,(T,)R,S], added to when `accumulate`, assigned otherwise
  bool accumulate;
  void* workspace;
};

template <>
struct Operator<SparseConvProblem> {
  using ForwardArgs = SparseConvForwardArgs;
  using BackwardDataArgs = SparseConvBackwardDataArgs;
  using BackwardWeightArgs = SparseConvBackwardWeightArgs;
  static constexpr const char* kOperation = "sparse_conv";
  CONVSCOPE_API static Registry<SparseConvAlgorithm>& algorithms(DeviceType device);
  CONVSCOPE_API static void run(const Call<SparseConvProblem>& call);
};

inline Registry<SparseConvAlgorithm>& sparse_conv_algorithms(DeviceType device) {
  return Operator<SparseConvProblem>::algorithms(device);
}

// The operands of a direction in their order (problem.h); `b` may be undefined.
struct SparseConvTensors {
  Tensor x, w, b, dy;
};
CONVSCOPE_API Operands sparse_conv_operands(Direction direction, const SparseConvTensors& tensors);

// A sum over the neighbours of each site. Both forward and backward_data have this form.
//   out[i, lane] = start[lane] + sum over taps, d < depth of in[j(i,tap), d] w[tap][d, lane]
struct SparseSums {
  SparseView view;
  std::int64_t sites;  // of out
  std::int64_t depth;  // C forward, K backward
  std::int64_t lanes;  // K forward, C backward

  // Returns where w [K,C,taps] stores w[tap][d, lane] of the sum above. Taps are numbered as in the
  // table of neighbours (SparseView).
  std::int64_t weight_at(std::int64_t tap, std::int64_t d, std::int64_t lane) const {
    const std::int64_t taps = view.table->taps, t = view.weight_tap(tap);
    return backward ? (d * lanes + lane) * taps + t : (lane * depth + d) * taps + t;
  }
  bool backward = false;
};
inline SparseSums sparse_sums(const SparseConvProblem& z, Direction direction) {
  if (direction == Direction::forward) {
    return {z.map->by_output(), z.out_count(), z.c, z.k, /*backward=*/false};
  }
  return {z.map->by_input(), z.in_count(), z.k, z.c, /*backward=*/true};
}

}  // namespace convscope

#define CONVSCOPE_SPARSE_CONV_ALGORITHM(algorithm)          \
  namespace {                                               \
  const bool registered_sparse_conv_algorithm =             \
      ::convscope::register_algorithm(algorithm, __FILE__); \
  }
