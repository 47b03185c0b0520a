// SPDX-License-Identifier: Apache-2.0
// algorithm.h: the arguments of a convolution algorithm's functions, and its registration
// (layers/dispatch/algorithm.h has the descriptor). The last lines of an algorithm's file fill in
// the descriptor and register it; algorithms that differ only in a number share a file. Selection,
// tests, benchmark and `convscope explain` walk the table, so nothing else has to be edited.
//
//   const Conv2dAlgorithm kAlgorithm{.name = "im2col_gemm", ..., .forward = forward};
//   CONVSCOPE_CONV2D_ALGORITHM(kAlgorithm)
#pragma once

#include "layers/conv2d/problem.h"
#include "layers/dispatch/algorithm.h"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope {

using Conv2dAlgorithm = Algorithm<Conv2dProblem>;
using Conv2dSupport = Support;
using Conv2dCost = Cost;
using Conv2dEpilogue = Epilogue;
using Conv2dPrepareArgs = PrepareArgs<Conv2dProblem>;

// Arguments of the functions: checked sizes, pointers to the problem's element types on the
// algorithm's device, and workspace_bytes() of scratch memory, 64-byte aligned. x, w and dy need no
// alignment beyond that of an element. No function is called when N = 0 (layers/dispatch/run.h).
struct Conv2dForwardArgs {
  const Conv2dProblem& problem;
  const void* x;  // [N,C,H,W]
  const void* w;  // [K,C/G,R,S], in the problem's weight format
  const void* b;  // [K], or null; f64 where w is integers, so that b is not rounded
  void* y;        // [N,K,P,Q], assigned
  void* workspace;
  Conv2dEpilogue epilogue = {};    // empty unless the algorithm has fuses_epilogue
  const void* prepared = nullptr;  // prepare_weights's output; null: none
  OperandViews views = {};         // quantisation scales, sparse positions
  HalfOperands x_half = {};        // for takes_half_operands: x may be null
};
struct Conv2dBackwardDataArgs {
  const Conv2dProblem& problem;
  const void* dy;  // [N,K,P,Q]
  const void* w;   // [K,C/G,R,S]
  void* dx;        // [N,C,H,W], assigned
  void* workspace;
  const void* prepared = nullptr;  // as in Conv2dForwardArgs
  OperandViews views = {};
  HalfOperands dy_half = {};  // fp16/bf16 copy of dy, as x_half of x
};
struct Conv2dBackwardWeightArgs {
  const Conv2dProblem& problem;
  const void* x;   // [N,C,H,W]
  const void* dy;  // [N,K,P,Q]
  void* dw;        // [K,C/G,R,S], added to when `accumulate`, assigned otherwise
  bool accumulate;
  void* workspace;
  OperandViews views = {};
  HalfOperands x_half = {}, dy_half = {};  // each may be empty
};

template <>
struct Operator<Conv2dProblem> {
  using ForwardArgs = Conv2dForwardArgs;
  using BackwardDataArgs = Conv2dBackwardDataArgs;
  using BackwardWeightArgs = Conv2dBackwardWeightArgs;
  static constexpr const char* kOperation = "conv2d";
  CONVSCOPE_API static Registry<Conv2dAlgorithm>& algorithms(DeviceType device);
  CONVSCOPE_API static void run(const Call<Conv2dProblem>& call);
};

// Returns the algorithms of one kind of device, by name.
inline Registry<Conv2dAlgorithm>& conv2d_algorithms(DeviceType device) {
  return Operator<Conv2dProblem>::algorithms(device);
}
CONVSCOPE_API bool register_conv2d_algorithm(const Conv2dAlgorithm& algorithm, const char* file);

}  // namespace convscope

#define CONVSCOPE_CONV2D_ALGORITHM(algorithm)                      \
  namespace {                                                      \
  const bool registered_conv2d_algorithm =                         \
      ::convscope::register_conv2d_algorithm(algorithm, __FILE__); \
  }
