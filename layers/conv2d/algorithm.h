// SPDX-License-Identifier: Apache-2.0
// algorithm.h: what the functions of a convolution algorithm get, and where its card is registered.
// The card itself stands in layers/dispatch/card.h. One algorithm = one file for each kind of
// device;
// the last lines of that file fill in the card and register it. Nothing else has to be edited:
// selection, tests, benchmark and `convscope explain` walk the table.
//
//   const Conv2dAlgorithm kCard{.name = "im2col_gemm", ..., .forward = forward};
//   CONVSCOPE_CONV2D_ALGORITHM(kCard)
#pragma once

#include "layers/conv2d/problem.h"
#include "layers/dispatch/card.h"
#include "layers/dispatch/layout/half_factors.h"

namespace convscope {

using Conv2dAlgorithm = Card<Conv2dProblem>;
using Conv2dSupport = Support;
using Conv2dCost = Cost;
using Conv2dEpilogue = Epilogue;
using Conv2dPrepareArgs = PrepareArgs<Conv2dProblem>;

// What a kernel gets: checked sizes, pointers of the problem's element types on the card's device,
// and workspace_bytes() of scratch, 64-byte aligned. x, w and dy need no alignment beyond their
// element's. The problem is never empty: with N = 0 no kernel is called (layers/dispatch/run.h).
struct Conv2dForwardArgs {
  const Conv2dProblem& problem;
  const void* x;  // [N,C,H,W]
  const void* w;  // [K,C/G,R,S], in the problem's weight format
  const void* b;  // [K], or null; f64 where w is integers: real numbers that no type rounds
  void* y;        // [N,K,P,Q], assigned
  void* workspace;
  Conv2dEpilogue epilogue = {};    // empty unless the card says fuses_epilogue
  const void* prepared = nullptr;  // what prepare_weights made of w; null: this card prepares none
  OperandViews views = {};         // scales of integers, places of sparse weights
  HalfFactors x_factors = {};      // of a card that takes_half_factors: given, x may be null
};
struct Conv2dBackwardDataArgs {
  const Conv2dProblem& problem;
  const void* dy;  // [N,K,P,Q]
  const void* w;   // [K,C/G,R,S]
  void* dx;        // [N,C,H,W], assigned
  void* workspace;
  const void* prepared = nullptr;  // as above
  OperandViews views = {};
  HalfFactors dy_factors = {};  // as above, of dy
};
struct Conv2dBackwardWeightArgs {
  const Conv2dProblem& problem;
  const void* x;   // [N,C,H,W]
  const void* dy;  // [N,K,P,Q]
  void* dw;        // [K,C/G,R,S], added to when `accumulate`, assigned otherwise
  bool accumulate;
  void* workspace;
  OperandViews views = {};
  HalfFactors x_factors = {}, dy_factors = {};  // as above: each given or not
};

template <>
struct HeavyLayer<Conv2dProblem> {
  using ForwardArgs = Conv2dForwardArgs;
  using BackwardDataArgs = Conv2dBackwardDataArgs;
  using BackwardWeightArgs = Conv2dBackwardWeightArgs;
  static constexpr const char* kOperation = "conv2d";
  CONVSCOPE_API static Registry<Conv2dAlgorithm>& algorithms(DeviceType device);
  CONVSCOPE_API static void run(const Call<Conv2dProblem>& call);
};

// The algorithms of one kind of device, by name.
inline Registry<Conv2dAlgorithm>& conv2d_algorithms(DeviceType device) {
  return HeavyLayer<Conv2dProblem>::algorithms(device);
}
CONVSCOPE_API bool register_conv2d_algorithm(const Conv2dAlgorithm& card, const char* file);

}  // namespace convscope

#define CONVSCOPE_CONV2D_ALGORITHM(card)                                                           \
  namespace {                                                                                      \
  const bool registered_conv2d_algorithm = ::convscope::register_conv2d_algorithm(card, __FILE__); \
  }
