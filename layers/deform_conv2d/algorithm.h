// SPDX-License-Identifier: Apache-2.0
// algorithm.h: what the functions of a deformable convolution's algorithm get, and where its card
// is registered; the card itself stands in layers/dispatch/card.h.
#pragma once

#include "layers/deform_conv2d/problem.h"
#include "layers/dispatch/card.h"
#include "layers/dispatch/operands.h"

namespace convscope {

using DeformConv2dAlgorithm = Card<DeformConv2dProblem>;

// Checked sizes, pointers of the problem's type on the card's device, and workspace_bytes() of
// scratch, 64-byte aligned. The problem is never empty.
struct DeformConv2dForwardArgs {
  const DeformConv2dProblem& problem;
  const void* x;       // [N,C,H,W]
  const void* w;       // [K,C/G,R,S]
  const void* offset;  // [N,2 O R S,P,Q]
  const void* mask;    // [N,O R S,P,Q], or null
  const void* b;       // [K], or null
  void* y;             // [N,K,P,Q], assigned
  void* workspace;
  const void* prepared = nullptr;  // what prepare_weights made of w; null: this card prepares none
};
// Outputs that are null are not asked for.
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
struct HeavyLayer<DeformConv2dProblem> {
  using ForwardArgs = DeformConv2dForwardArgs;
  using BackwardDataArgs = DeformConv2dBackwardDataArgs;
  using BackwardWeightArgs = DeformConv2dBackwardWeightArgs;
  static constexpr const char* kOperation = "deform_conv2d";
  CONVSCOPE_API static Registry<DeformConv2dAlgorithm>& algorithms(DeviceType device);
  CONVSCOPE_API static void run(const Call<DeformConv2dProblem>& call);
  // The same sums over the magnitudes of x, w, dy and the mask, at the same places: what an error
  // is measured against. On the CPU, from operands on any device.
  CONVSCOPE_API static Operands magnitudes(const DeformConv2dProblem& problem, Direction direction,
                                           const Operands& operands);
};

inline Registry<DeformConv2dAlgorithm>& deform_conv2d_algorithms(DeviceType device) {
  return HeavyLayer<DeformConv2dProblem>::algorithms(device);
}

// The operands of a direction in their order (problem.h); `b` and `mask` may be undefined.
struct DeformConv2dTensors {
  Tensor x, w, offset, mask, b, dy;
};
CONVSCOPE_API Operands deform_conv2d_operands(Direction direction,
                                              const DeformConv2dTensors& tensors);

}  // namespace convscope

#define CONVSCOPE_DEFORM_CONV2D_ALGORITHM(card)                                               \
  namespace {                                                                                 \
  const bool registered_deform_conv2d_algorithm = ::convscope::register_card(card, __FILE__); \
  }
