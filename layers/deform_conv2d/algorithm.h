// SPDX-License-Identifier: Apache-2.0
// algorithm.h: the arguments of the functions of a deformable convolution's algorithm, and the
// macro that registers an algorithm. The struct Algorithm is in layers/dispatch/algorithm.h.
#pragma once

#include "layers/deform_conv2d/problem.h"
#include "layers/dispatch/algorithm.h"
#include "layers/dispatch/operands.h"

namespace convscope {

using DeformConv2dAlgorithm = Algorithm<DeformConv2dProblem>;

// The arguments of a forward call. The caller has checked the sizes. Arrays have the element type
// of the problem and are on the algorithm's device. `workspace` has workspace_bytes() bytes and is
// 64-byte aligned. The problem is never empty.
struct DeformConv2dForwardArgs {
  const DeformConv2dProblem& problem;
  const void* x;       // [N,C,H,W]
  const void* w;       // [K,C/G,R,S]
  const void* offset;  // [N,2 O R S,P,Q]
  const void* mask;    // [N,O R S,P,Q], or null
  const void* b;       // [K], or null
  void* y;             // [N,K,P,Q], assigned
  void* workspace;
  const void* prepared = nullptr;  // weights packed by prepare_weights, or null
};
// An output that is null is not computed.
struct DeformConv2dBackwardDataArgs {
  const DeformConv2dProblem& problem;
  const void* dy;      // [N,K,P,Q]
  const void* w;       // [K,C/G,R,S]
  const void* x;       // [N,C,H,W]
  const void* offset;  // [N,2 O R S,P,Q]
  const void* mask;    // [N,O R S,P,Q], or null
  void* dx;            // [N,C,H,W], assigned
  void* doffset;       // [N,2 O R S,P,Q], assigned
  void* dmask;         // [N,O R S,P,Q], assigned; null where there is no mask
  void* workspace;
  const void* prepared = nullptr;
};
struct DeformConv2dBackwardWeightArgs {
  const DeformConv2dProblem& problem;
  const void* x;       // [N,C,H,W]
  const void* dy;      // [N,K,P,Q]
  const void* offset;  // [N,2 O R S,P,Q]
  const void* mask;    // [N,O R S,P,Q], or null
  void* dw;            // [K,C/G,R,S], added to when `accumulate`, assigned otherwise
  bool accumulate;
  void* workspace;
};

template <>
struct Operator<DeformConv2dProblem> {
  using ForwardArgs = DeformConv2dForwardArgs;
  using BackwardDataArgs = DeformConv2dBackwardDataArgs;
  using BackwardWeightArgs = DeformConv2dBackwardWeightArgs;
  static constexpr const char* kOperation = "deform_conv2d";
  static constexpr std::size_t kBiasPlace = 4;  // of b in Operands::in of a forward pass
  CONVSCOPE_API static Registry<DeformConv2dAlgorithm>& algorithms(DeviceType device);
  CONVSCOPE_API static void run(const Call<DeformConv2dProblem>& call);
  // Computes one direction with x, w, dy and the mask replaced by their magnitudes, at the same
  // sampling positions. Error bounds are relative to the result. The function runs on the CPU and
  // takes operands on any device.
  CONVSCOPE_API static Operands magnitudes(const DeformConv2dProblem& problem, Direction direction,
                                           const Operands& operands);
};

inline Registry<DeformConv2dAlgorithm>& deform_conv2d_algorithms(DeviceType device) {
  return Operator<DeformConv2dProblem>::algorithms(device);
}

// The operands of a direction in their order (problem.h); `b` and `mask` may be undefined.
struct DeformConv2dTensors {
  Tensor x, w, offset, mask, b, dy;
};
CONVSCOPE_API Operands deform_conv2d_operands(Direction direction,
                                              const DeformConv2dTensors& tensors);

}  // namespace convscope

#define CONVSCOPE_DEFORM_CONV2D_ALGORITHM(algorithm)        \
  namespace {                                               \
  const bool registered_deform_conv2d_algorithm =           \
      ::convscope::register_algorithm(algorithm, __FILE__); \
  }
