// SPDX-License-Identifier: Apache-2.0
// algorithm.h: the card of a convolution algorithm: what it is called, what it can do, what it
// costs, how exact it is, and its three functions. One algorithm = one file for each kind of
// device; the last lines of that file fill in the card and register it. Nothing else has to be
// edited: selection, tests, benchmark and `convscope explain` walk the table.
//
//   const Conv2dAlgorithm kCard{.name = "im2col_gemm", ..., .forward = forward};
//   CONVSCOPE_CONV2D_ALGORITHM(kCard)
#pragma once

#include <cstddef>
#include <string>

#include "framework/device.h"
#include "framework/registry.h"
#include "layers/conv2d/problem.h"
#include "layers/dispatch/card_function.h"

namespace convscope {

// What rides behind a forward pass: y = relu(conv + b + residual), each part if asked for. A card that
// says fuses_epilogue applies it while a piece of y is still in the cache; for the others
// execute_forward() makes one pass over y. Both give the same bits.
struct Conv2dEpilogue {
  const void* residual = nullptr;  // [N,K,P,Q], added; must not overlap y
  bool relu = false;               // max(y, 0); NaN stays NaN

  bool empty() const { return residual == nullptr && !relu; }
};

// What a kernel gets: checked sizes, pointers of the problem's element type on the card's device,
// and workspace_bytes() of scratch, 64-byte aligned. x, w and dy need no alignment beyond their
// element's.
struct Conv2dForwardArgs {
  const Conv2dProblem& problem;
  const void* x;  // [N,C,H,W]
  const void* w;  // [K,C/G,R,S]
  const void* b;  // [K], or null
  void* y;        // [N,K,P,Q], assigned
  void* workspace;
  Conv2dEpilogue epilogue = {};    // empty unless the card says fuses_epilogue
  const void* prepared = nullptr;  // what prepare_weights made of w; null: this card prepares none
};
struct Conv2dBackwardDataArgs {
  const Conv2dProblem& problem;
  const void* dy;  // [N,K,P,Q]
  const void* w;   // [K,C/G,R,S]
  void* dx;        // [N,C,H,W], assigned
  void* workspace;
  const void* prepared = nullptr;  // as above
};
struct Conv2dBackwardWeightArgs {
  const Conv2dProblem& problem;
  const void* x;   // [N,C,H,W]
  const void* dy;  // [N,K,P,Q]
  void* dw;        // [K,C/G,R,S], added to when `accumulate`, assigned otherwise
  bool accumulate;
  void* workspace;
};

// Weights in the form that a kernel reads them in: transformed, or packed in panels. They are
// prepared once and used by every call until w changes.
struct Conv2dPrepareArgs {
  const Conv2dProblem& problem;
  Direction direction;  // forward or backward_data: the two read w in different orders
  const void* w;        // [K,C/G,R,S]
  void* prepared;       // prepared_bytes() bytes, 64-byte aligned, assigned
  void* workspace;      // workspace_bytes() of the same direction; its content is not kept
};

// Yes, or no with a sentence: "expects stride 1, got stride 2".
struct Conv2dSupport {
  bool yes = true;
  std::string reason;

  static Conv2dSupport no(std::string why) { return {false, std::move(why)}; }
};

// FLOPs really executed and bytes really moved to and from memory. peak_share: the part of the
// machine's peak that the inner loop can reach (1 for a full register tile); with it `auto`
// estimates the time as max(flops / (peak * peak_share), bytes / bandwidth), and on a GPU adds
// pass_bytes / bandwidth + launches * (time of a launch).
struct Conv2dCost {
  double flops = 0;
  double bytes = 0;  // moved while the sums are made
  double peak_share = 1;
  // GPU only:
  double pass_bytes = 0;      // moved by kernels that make no sums: transforms, columns, transposes
  double launches = 1;        // kernels, one after the other
  bool tensor_cores = false;  // the peak is that of the tensor cores for the problem's type:
                              // f16/bf16, else TF32 (f32-grade by three products: 3 x the FLOPs)
};

// peak_share when `cycles` of one core are spent beside `flops` at `share`: set-up, copies, borders.
CONVSCOPE_API double share_beside(double flops, double share, double cycles);

struct Conv2dAlgorithm {
  const char* name = "";  // lower case, names the method: "im2col_gemm"
  DeviceType device = DeviceType::cpu;
  const char* idea = "";   // one line
  const char* paper = "";  // author, year, title, arXiv or DOI
  Conv2dSupport (*supports)(const Conv2dProblem&, Direction) = nullptr;
  Conv2dCost (*cost)(const Conv2dProblem&, Direction) = nullptr;
  std::size_t (*workspace_bytes)(const Conv2dProblem&, Direction) = nullptr;
  // Both null: the card reads w as it is. Else forward and backward_data get args.prepared for every
  // problem and direction with prepared_bytes() > 0, and may leave args.w alone. The prepared block
  // is no part of workspace_bytes.
  std::size_t (*prepared_bytes)(const Conv2dProblem&, Direction) = nullptr;
  void (*prepare_weights)(const Conv2dPrepareArgs&) = nullptr;
  // The tests' bound: max|error| <= error_growth * eps * max(conv(|x|,|w|)).
  double error_growth = 1;
  bool exact_on_integers = false;  // bit by bit, as long as all sums stay below 2^24
  bool deterministic = true;       // same bits on each run, with any number of threads
  bool auto_ok = true;             // false: never chosen by `auto` or `measure`
  bool fuses_epilogue = false;     // forward applies args.epilogue by itself
  // Null: this direction is not offered.
  CardFunction<Conv2dForwardArgs> forward = nullptr;
  CardFunction<Conv2dBackwardDataArgs> backward_data = nullptr;
  CardFunction<Conv2dBackwardWeightArgs> backward_weight = nullptr;

  bool offers(Direction direction) const {
    return direction == Direction::forward         ? forward != nullptr
           : direction == Direction::backward_data ? backward_data != nullptr
                                                   : backward_weight != nullptr;
  }
  // 0 for a card that prepares nothing for this problem and direction.
  std::size_t prepared_size(const Conv2dProblem& problem, Direction direction) const {
    if (prepared_bytes == nullptr || direction == Direction::backward_weight) return 0;
    return prepared_bytes(problem, direction);
  }
};

// The algorithms of one kind of device, by name.
CONVSCOPE_API Registry<Conv2dAlgorithm>& conv2d_algorithms(DeviceType device);
CONVSCOPE_API bool register_conv2d_algorithm(const Conv2dAlgorithm& card, const char* file);

// supports(), and "does not compute <direction>" for a direction that is not offered.
CONVSCOPE_API Conv2dSupport support_of(const Conv2dAlgorithm& algorithm,
                                       const Conv2dProblem& problem, Direction direction);

}  // namespace convscope

#define CONVSCOPE_CONV2D_ALGORITHM(card)                                                           \
  namespace {                                                                                      \
  const bool registered_conv2d_algorithm = ::convscope::register_conv2d_algorithm(card, __FILE__); \
  }
