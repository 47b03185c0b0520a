// SPDX-License-Identifier: Apache-2.0
// card.h: the card of an algorithm of a heavy layer: what it is called, what it can do, what it
// costs, how exact it is, and its functions.
//
// A heavy layer is one with several algorithms for one formula: conv2d, and what is like it. It
// declares a problem, what its functions get, and in one struct (of conv2d: algorithm.h) the rest:
//
//   template <>
//   struct HeavyLayer<Conv2dProblem> {
//     using ForwardArgs = Conv2dForwardArgs;       // what a kernel gets, for each direction
//     using BackwardDataArgs = ...; using BackwardWeightArgs = ...;
//     static constexpr const char* kOperation = "conv2d";  // starts errors, names the cache file
//     static Registry<Card<Conv2dProblem>>& algorithms(DeviceType);
//     static void run(const Call<Conv2dProblem>&);         // calls the card's function (execute.h)
//   };
//
// With it this folder gives the layer: select.h (auto, measure, check:a,b or a name; verdicts for
// `explain`), measure.h, choice_cache.h and execute.h; experiments/bench gives it rows.
// tests/layers/dispatch/correlation1d.* is a whole heavy layer.
//
// Of a problem is asked: text(), check(), nominal_flops(), nominal_bytes(), is_empty() (no samples:
// nothing to compute), dtype, math, types, weight_format and operands(direction) (operands.h); of
// one with images also layout (activation_layout.h). One that is seldom the same twice may have
// bucket_text(), by which `measure` remembers it, and kMostChoices (choice_cache.h).
//
// Of an empty problem a card is asked supports() alone. select.h and run.h answer the rest, so its
// other functions may count on one sample at least.
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
#include "layers/dispatch/activation_layout.h"
#include "layers/dispatch/card_function.h"
#include "layers/dispatch/direction.h"
#include "layers/dispatch/elements.h"
#include "layers/dispatch/weight_format.h"

namespace convscope {

// Yes, or no with a sentence: "expects stride 1, got stride 2".
struct Support {
  bool yes = true;
  std::string reason;

  static Support no(std::string why) { return {false, std::move(why)}; }
};

// How often weights are used that have been prepared: by the one call that they are prepared for,
// as in training, or by many, as in inference.
enum class WeightUse { once, often };

// FLOPs really executed and bytes really moved to and from memory. peak_share: the part of the
// machine's peak that the inner loop can reach (1 for a full register tile), of the peak of
// products of the factors' type; with it `auto`
// estimates the time as the longer of flops / (peak * peak_share) and bytes / bandwidth. On a CPU
// half of the shorter one is added, which does not hide behind it; on a GPU pass_bytes / bandwidth
// + launches * (time of a launch).
struct Cost {
  double flops = 0;
  double bytes = 0;  // moved while the sums are made
  double peak_share = 1;
  // The part that prepare_weights() takes, in [0, 1): on a CPU of flops / peak_share, on a GPU of
  // the whole estimate.
  double prepare_part = 0;
  // GPU only:
  double pass_bytes = 0;      // moved by kernels that make no sums: transforms, columns, transposes
  double launches = 1;        // kernels, one after the other
  bool tensor_cores = false;  // the peak is that of the tensor cores for the problem's type:
                              // f16/bf16, else TF32 (f32-grade by three products: 3 x the FLOPs)
  // Executed FLOPs as the textbook counts them, where `flops` says them in units of that peak
  // (three products are one); 0: they are `flops`.
  double executed_flops = 0;

  double executed() const { return executed_flops > 0 ? executed_flops : flops; }
};

// peak_share when `cycles` of one core are spent beside `flops` at `share`: set-up, copies,
// borders. `factors`: their type, which says how many FLOPs a cycle has.
CONVSCOPE_API double share_beside(double flops, double share, double cycles,
                                  DType factors = DType::f32);
// The cost with `cycles` of one core more, which prepare_weights() takes.
CONVSCOPE_API Cost with_preparation(Cost cost, double cycles);

// What `auto` believes that the work takes on this machine (framework/machine/ceilings.h); the type
// of the factors says which peak counts. Weights that are used often cost no preparation, but are
// read from memory in each call.
CONVSCOPE_API double estimated_ms(const Cost& cost, DeviceType device, DType factors);
// What most of that time is: "arithmetic", "memory" or, of a GPU, "launches".
CONVSCOPE_API const char* limit_of(const Cost& cost, DeviceType device, DType factors);
CONVSCOPE_API double estimated_ms_prepared(Cost cost, std::size_t prepared_bytes, DeviceType device,
                                           DType factors);

// What stands beside the pointers of a call when types or the format of w ask for it: scales of
// integers, and the places of the kept blocks. A gradient has those of its array.
struct OperandViews {
  Quantisation x, w, y;
  Quantisation residual = {};  // of the epilogue's, when it is codes
  BlockSparseView w_blocks;    // undefined: w is dense
};

// What rides behind a forward pass: y = relu(sum + b + residual), each part if asked for. A card
// that says fuses_epilogue applies it while a piece of y is still in the cache; for the others it
// is one pass over y. Both give the same bits.
struct Epilogue {
  const void* residual = nullptr;                       // of y's shape, added; must not overlap y
  bool relu = false;                                    // min(max(y, 0), most); NaN stays NaN
  float most = std::numeric_limits<float>::infinity();  // of relu alone; finite on the CPU only
  // Of the residual; that of y, or of a card with integers also u8 and i8 with views.residual.
  DType residual_type = DType::f32;

  bool empty() const { return residual == nullptr && !relu; }
};

// Weights in the form that a kernel reads them in: transformed, or packed in panels. They are
// prepared once and used by every call until w changes.
template <class Problem>
struct PrepareArgs {
  const Problem& problem;
  Direction direction;  // forward or backward_data: the two read w in different orders
  const void* w;        // in the problem's weight format
  void* prepared;       // prepared_bytes() bytes, 64-byte aligned, assigned
  void* workspace;      // workspace_bytes() of the same direction; its content is not kept
  OperandViews views = {};
};

// What a heavy layer declares beside its problem; see above.
template <class Problem>
struct HeavyLayer;
template <class Problem>
struct Call;

template <class Problem>
struct Card {
  using Layer = HeavyLayer<Problem>;

  const char* name = "";  // lower case, names the method: "im2col_gemm"
  DeviceType device = DeviceType::cpu;
  const char* idea = "";   // one line
  const char* paper = "";  // author, year, title, arXiv or DOI
  Support (*supports)(const Problem&, Direction) = nullptr;
  Cost (*cost)(const Problem&, Direction) = nullptr;
  std::size_t (*workspace_bytes)(const Problem&, Direction) = nullptr;
  // Both null: the card reads w as it is. Else, for problems and directions with prepared_bytes() >
  // 0, forward and backward_data get args.prepared and do not read args.w, which may be null. The
  // prepared block is no part of workspace_bytes.
  std::size_t (*prepared_bytes)(const Problem&, Direction) = nullptr;
  void (*prepare_weights)(const PrepareArgs<Problem>&) = nullptr;
  // Whether weights are prepared for one call alone, too; null: always. Where it says no, such a
  // call gets args.prepared null and reads args.w.
  bool (*prepares_for_one_call)(const Problem&, Direction) = nullptr;
  // Bounds of the error: max|error| <= growth(terms of a sum) * eps * max(conv(|x|,|w|)) where
  // rounding errors have random signs: normal numbers, also with an offset and with heavy tails. It
  // is error_growth for sums of any length where sums are cut into chains
  // (framework/simd/sum_chain.h). `one_chain`: they are not, and the bound of sums longer than
  // kSumChain terms grows like the root of their length. worst_growth() is the bound for any
  // numbers.
  double error_growth = 1;
  bool one_chain = false;
  bool exact_on_integers = false;  // bit by bit, as long as all sums stay below 2^24
  bool deterministic = true;       // same bits on each run, with any number of threads
  bool auto_ok = true;             // false: never chosen by `auto` or `measure`
  bool fuses_epilogue = false;     // forward applies args.epilogue by itself
  // All false: the card is never asked about a problem whose operands differ in type, whose weights
  // are sparse, or whose images are blocked. True: supports() says which of them it takes.
  bool takes_mixed_types = false;
  bool takes_sparse_weights = false;
  bool takes_blocked_layout = false;
  bool takes_blocked_y = false;  // x [N,C,H,W], y blocked; never asked about backward_data
  bool takes_channels_last = false;
  // Of tf32 images with their channels last it takes the factors of a product where they are given
  // (half_factors.h), and then does not read the image. workspace_bytes() has room for its own.
  bool takes_half_factors = false;
  // Null: this direction is not offered.
  CardFunction<typename Layer::ForwardArgs> forward = nullptr;
  CardFunction<typename Layer::BackwardDataArgs> backward_data = nullptr;
  CardFunction<typename Layer::BackwardWeightArgs> backward_weight = nullptr;

  double growth(double terms) const {
    return one_chain ? error_growth * std::sqrt(std::max(1.0, terms / kSumChain)) : error_growth;
  }
  // On any numbers, equal ones too: that of the chains, times how much larger than a plain chain's
  // the card's error is. For sums of the products themselves it is proven (sum_chain.h).
  double worst_growth(double terms) const {
    const double factor = std::max(1.0, error_growth / kExpectedChainGrowth);
    return std::max(growth(terms), factor * worst_sum_growth(terms, one_chain));
  }
  // Transforms (Winograd, Fourier) also multiply what no output adds up, such as a number at the
  // border with a tap outside of the image. Their errors are relative to the largest of x times the
  // sum over |w|, and not to the largest output. Such cards are not exact on integers.
  bool errs_by_tile() const { return !exact_on_integers; }
  bool offers(Direction direction) const {
    return direction == Direction::forward         ? forward != nullptr
           : direction == Direction::backward_data ? backward_data != nullptr
                                                   : backward_weight != nullptr;
  }
  // 0 for a card that prepares nothing for this problem, direction and use.
  std::size_t prepared_size(const Problem& problem, Direction direction,
                            WeightUse use = WeightUse::often) const {
    if (prepared_bytes == nullptr || direction == Direction::backward_weight) return 0;
    const bool reads_w = use == WeightUse::once && prepares_for_one_call != nullptr &&
                         !prepares_for_one_call(problem, direction);
    return reads_w ? 0 : prepared_bytes(problem, direction);
  }
};

// Puts a card into the table of its device; from then on its functions say that they ran.
template <class Problem>
bool register_card(Card<Problem> card, const char* file) {
  card.forward.set_name(card.name, name_of(Direction::forward));
  card.backward_data.set_name(card.name, name_of(Direction::backward_data));
  card.backward_weight.set_name(card.name, name_of(Direction::backward_weight));
  return HeavyLayer<Problem>::algorithms(card.device).add(card.name, card, file);
}

// supports(), and a sentence for what a card need not speak of: a direction that it does not offer,
// operands of several types, sparse weights, blocked images.
template <class Problem>
Support support_of(const Card<Problem>& card, const Problem& problem, Direction direction) {
  if (!card.offers(direction)) {
    return Support::no(cat("does not compute ", name_of(direction)));
  }
  if (problem.types && !card.takes_mixed_types) {
    return Support::no(cat("expects operands of one type, got ", problem.types->text()));
  }
  if (!problem.weight_format.is_dense() && !card.takes_sparse_weights) {
    return Support::no(cat("expects dense weights, got ", problem.weight_format.text()));
  }
  const ActivationLayout layout = layout_of(problem);
  if (layout == ActivationLayout::blocked_y) {
    if (!card.takes_blocked_y) {
      return Support::no(cat("expects x and y in one layout, got layout ", name_of(layout)));
    }
    if (direction == Direction::backward_data) {
      return Support::no("expects blocked dx where dy is blocked, got layout blocked_y");
    }
  } else if ((layout == ActivationLayout::blocked && !card.takes_blocked_layout) ||
             (layout == ActivationLayout::channels_last && !card.takes_channels_last)) {
    return Support::no(cat("expects images [N,C,H,W], got layout ", name_of(layout)));
  }
  return card.supports(problem, direction);
}

// The type of the factors that are multiplied: of bytes that of w, though x may come as f32.
template <class Problem>
DType factors_of(const Problem& problem) {
  return problem.types && is_code(problem.types->w) ? problem.types->w : problem.dtype;
}

template <class Problem>
double estimated_ms(const Card<Problem>& card, const Problem& problem, Direction direction,
                    WeightUse use = WeightUse::once) {
  const Cost cost = card.cost(problem, direction);
  const std::size_t prepared = card.prepared_size(problem, direction);
  return use == WeightUse::often && prepared > 0
             ? estimated_ms_prepared(cost, prepared, card.device, factors_of(problem))
             : estimated_ms(cost, card.device, factors_of(problem));
}

}  // namespace convscope
