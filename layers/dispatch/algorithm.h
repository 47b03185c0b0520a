// SPDX-License-Identifier: Apache-2.0
// algorithm.h: the description of one algorithm of an operator: its name, what it supports, its
// cost, its error bounds and its functions.
//
// An operator (conv2d, deform_conv2d, sparse_conv) has several algorithms for one formula. It
// declares a problem, the arguments of its functions, and one struct with the rest (for conv2d in
// algorithm.h):
//
//   template <>
//   struct Operator<Conv2dProblem> {
//     using ForwardArgs = Conv2dForwardArgs;       // arguments of a kernel, for each direction
//     using BackwardDataArgs = ...; using BackwardWeightArgs = ...;
//     static constexpr const char* kOperation = "conv2d";  // begins errors and file names
//     static Registry<Algorithm<Conv2dProblem>>& algorithms(DeviceType);
//     static void run(const Call<Conv2dProblem>&);  // calls the algorithm's function (execute.h)
//   };
//
// This folder then provides select.h (auto, measure, check:a,b or a name; verdicts for `explain`),
// measure.h, choice_cache.h and execute.h. tests/layers/dispatch/correlation1d.* is a full example.
//
// A problem has text(), check(), nominal_flops(), nominal_bytes(), is_empty() (no samples: nothing
// to compute), dtype, math, types, weight_format and operands(direction) (operands.h). A problem
// with images also has layout (activation_layout.h). A problem that rarely repeats may have
// bucket_text(), by which `measure` remembers it, and kMaxChoices (choice_cache.h).
//
// For an empty problem only supports() is called: select.h and run.h handle the rest. All other
// functions may assume at least one sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "framework/device.h"
#include "framework/registry.h"
#include "framework/simd/sum_chain.h"
#include "framework/weight_format.h"
#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/algorithm_function.h"
#include "layers/dispatch/cost/model.h"
#include "layers/dispatch/direction.h"
#include "layers/dispatch/elements.h"

namespace convscope {

// Whether an algorithm supports a problem. `reason` says why not: "expects stride 1, got stride 2".
struct Support {
  bool yes = true;
  std::string reason;

  static Support no(std::string why) { return {false, std::move(why)}; }
};

// The data that a call with integer types or sparse weights needs besides its pointers: scales, and
// the positions of the kept blocks. A gradient uses the entry of its array: dx uses that of x.
struct OperandViews {
  Quantisation x, w, y;
  Quantisation residual = {};  // of the epilogue's residual, when it holds integer codes
  BlockSparseView w_blocks;    // undefined: w is dense
};

// Work fused after a forward pass: y = relu(sum + b + residual), where each term and the relu are
// optional. An algorithm with fuses_epilogue applies the epilogue while a tile of y is in cache.
// For other algorithms the epilogue is one extra pass over y. The bits are the same in both cases.
struct Epilogue {
  const void* residual = nullptr;                       // of y's shape, added; must not overlap y
  bool relu = false;                                    // min(max(y, 0), most); NaN stays NaN
  float most = std::numeric_limits<float>::infinity();  // upper bound of relu; on a GPU infinity
  // The residual's type is that of y. Integer algorithms also take a u8 or i8 residual, whose
  // scales are in views.residual.
  DType residual_type = DType::f32;

  bool empty() const { return residual == nullptr && !relu; }
};

// Arguments of prepare_weights(): the function transforms weights or packs them in panels. It runs
// once, and every call uses the result until w changes.
template <class Problem>
struct PrepareArgs {
  const Problem& problem;
  Direction direction;  // forward or backward_data, which read w in different orders
  const void* w;        // in the problem's weight format
  void* prepared;       // prepared_bytes() bytes, 64-byte aligned, assigned
  void* workspace;      // workspace_bytes() of the same direction; its content is not kept
  OperandViews views = {};
};

// The declarations of an operator besides its problem; see the top of this file.
template <class Problem>
struct Operator;
template <class Problem>
struct Call;

template <class Problem>
struct Algorithm {
  using Layer = Operator<Problem>;

  const char* name = "";  // lower case, names the method: "im2col_gemm"
  DeviceType device = DeviceType::cpu;
  const char* idea = "";   // one line
  const char* paper = "";  // author, year, title, arXiv or DOI
  Support (*supports)(const Problem&, Direction) = nullptr;
  Cost (*cost)(const Problem&, Direction) = nullptr;
  std::size_t (*workspace_bytes)(const Problem&, Direction) = nullptr;
  // If the next two functions are null, the algorithm reads w directly. Otherwise, if
  // prepared_bytes() > 0, forward and backward_data read args.prepared and not args.w, which may
  // be null. workspace_bytes() does not include the prepared weights.
  std::size_t (*prepared_bytes)(const Problem&, Direction) = nullptr;
  void (*prepare_weights)(const PrepareArgs<Problem>&) = nullptr;
  // Returns whether weights are prepared even if only one call uses them; a null pointer means
  // always. If the result is false, a single call gets args.prepared = null and reads args.w.
  bool (*prepares_for_one_call)(const Problem&, Direction) = nullptr;
  // Error bound: max|error| <= growth(terms of a sum) * eps * max(conv(|x|,|w|)). It holds where
  // rounding errors have random signs, as for normally distributed elements, also with an added
  // offset or heavy tails.
  // If sums are split into chains (framework/simd/sum_chain.h), growth() equals error_growth for
  // any length. With `one_chain` sums are not split, and growth() rises with the square root of the
  // length beyond kSumChain terms. worst_growth() is a bound for any values.
  double error_growth = 1;
  bool one_chain = false;
  bool exact_on_integers = false;  // bit for bit, while all sums stay below 2^24
  bool deterministic = true;       // same bits on each run, with any number of threads
  bool auto_ok = true;             // false: `auto` and `measure` take it last
  bool fuses_epilogue = false;     // forward applies args.epilogue itself
  // If a flag is set, supports() is called for problems of this kind and decides for each of them.
  // If the flag is not set, support_of() refuses operands of different types, sparse weights or
  // other layouts.
  bool takes_mixed_types = false;
  bool takes_sparse_weights = false;
  bool takes_nchw16c_layout = false;
  bool takes_nchw_x = false;  // x is NCHW, y is NCHW16c; never called for backward_data
  bool takes_nhwc = false;
  // tf32 on NHWC images: if fp16 operands (half_operands.h) are given, the algorithm reads them
  // instead of the image. Otherwise it makes them in its workspace, so workspace_bytes() includes
  // them in both cases.
  bool takes_half_operands = false;
  // Null: this direction is not offered.
  AlgorithmFunction<typename Layer::ForwardArgs> forward = nullptr;
  AlgorithmFunction<typename Layer::BackwardDataArgs> backward_data = nullptr;
  AlgorithmFunction<typename Layer::BackwardWeightArgs> backward_weight = nullptr;

  double growth(double terms) const {
    return one_chain ? error_growth * std::sqrt(std::max(1.0, terms / kSumChain)) : error_growth;
  }
  // Returns the bound for any values, also equal ones: the bound of chains, times the ratio of the
  // algorithm's error to the error of a plain chain. The bound is proven for direct sums
  // (sum_chain.h).
  double worst_growth(double terms) const {
    const double factor = std::max(1.0, error_growth / kExpectedChainGrowth);
    return std::max(growth(terms), factor * worst_sum_growth(terms, one_chain));
  }
  // Transforms (Winograd, FFT) also multiply terms that do not reach any output, such as a border
  // pixel with a tap outside of the image. So their error bound is a multiple of max|x| times the
  // sum over |w|, not of the largest output. Such algorithms are not exact on integers.
  bool errs_by_tile() const { return !exact_on_integers; }
  bool offers(Direction direction) const {
    return direction == Direction::forward         ? forward != nullptr
           : direction == Direction::backward_data ? backward_data != nullptr
                                                   : backward_weight != nullptr;
  }
  // Returns 0 if the algorithm prepares nothing for this problem, direction and use.
  std::size_t prepared_size(const Problem& problem, Direction direction,
                            WeightUse use = WeightUse::often) const {
    if (prepared_bytes == nullptr || direction == Direction::backward_weight) return 0;
    const bool reads_w = use == WeightUse::once && prepares_for_one_call != nullptr &&
                         !prepares_for_one_call(problem, direction);
    return reads_w ? 0 : prepared_bytes(problem, direction);
  }
};

// Adds an algorithm to the table of its device; its functions then count their calls.
template <class Problem>
bool register_algorithm(Algorithm<Problem> algorithm, const char* file) {
  algorithm.forward.set_name(algorithm.name, name_of(Direction::forward));
  algorithm.backward_data.set_name(algorithm.name, name_of(Direction::backward_data));
  algorithm.backward_weight.set_name(algorithm.name, name_of(Direction::backward_weight));
  return Operator<Problem>::algorithms(algorithm.device).add(algorithm.name, algorithm, file);
}

// Returns a refusal with a reason for what the algorithm did not declare: a missing direction,
// operands of several types, sparse weights, other layouts. Otherwise returns supports().
template <class Problem>
Support support_of(const Algorithm<Problem>& algorithm, const Problem& problem,
                   Direction direction) {
  if (!algorithm.offers(direction)) {
    return Support::no(cat("does not compute ", name_of(direction)));
  }
  if (problem.types && !algorithm.takes_mixed_types) {
    return Support::no(cat("expects operands of one type, got ", problem.types->text()));
  }
  if (!problem.weight_format.is_dense() && !algorithm.takes_sparse_weights) {
    return Support::no(cat("expects dense weights, got ", problem.weight_format.text()));
  }
  const ImageLayouts layout = layouts_of(problem);
  if (layout.x != layout.y) {
    if (!algorithm.takes_nchw_x || layout != kNchwToNchw16c) {
      return Support::no(cat("expects x and y in one layout, got layout ", name_of(layout)));
    }
    if (direction == Direction::backward_data) {
      return Support::no(cat("expects dx in the layout of dy, got layout ", name_of(layout)));
    }
  } else if ((layout == ActivationLayout::nchw16c && !algorithm.takes_nchw16c_layout) ||
             (layout == ActivationLayout::nhwc && !algorithm.takes_nhwc)) {
    return Support::no(cat("expects images [N,C,H,W], got layout ", name_of(layout)));
  }
  return algorithm.supports(problem, direction);
}

// Returns the type of the multiplied operands. For integers it is the type of w, because x may be
// f32.
template <class Problem>
DType operand_type_of(const Problem& problem) {
  return problem.types && is_code(problem.types->w) ? problem.types->w : problem.dtype;
}

// Returns the kernel whose coefficients estimate a direction of an algorithm. An operator that
// calls the kernels of another one has cost_key().
template <class Problem>
CostKey cost_key_of(const Algorithm<Problem>& algorithm, Direction direction) {
  if constexpr (requires { Operator<Problem>::cost_key(algorithm.name, direction); }) {
    return Operator<Problem>::cost_key(algorithm.name, direction);
  }
  return {Operator<Problem>::kOperation, algorithm.name, direction};
}

template <class Problem>
double estimated_ms(const Algorithm<Problem>& algorithm, const Problem& problem,
                    Direction direction, WeightUse use = WeightUse::once) {
  return estimated_ms(cost_key_of(algorithm, direction), algorithm.cost(problem, direction),
                      algorithm.device, operand_type_of(problem), use,
                      algorithm.prepared_size(problem, direction));
}

}  // namespace convscope
