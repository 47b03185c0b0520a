// SPDX-License-Identifier: Apache-2.0
// algorithm.cpp: the table of algorithms of the transposed convolution, which answers each question
// with the answer of conv2d's algorithm, and one call of an algorithm.
#include "layers/conv_transpose2d/algorithm.h"

#include <array>
#include <mutex>
#include <optional>
#include <utility>

#include "framework/ops/elementwise.h"
#include "framework/parallel.h"
#include "layers/conv2d/epilogue.h"
#include "layers/dispatch/execute.h"

namespace convscope {
namespace {

using Problem = ConvTranspose2dProblem;

// The functions of an algorithm are plain pointers, so each algorithm of conv2d gets a slot and
// functions that know the number of the slot.
constexpr std::size_t kSlots = 160;
std::array<const Conv2dAlgorithm*, kSlots> slots = {};

template <std::size_t I>
struct Functions {
  static Support supports(const Problem& z, Direction direction) {
    return support_of(*slots[I], z.convolution(), exchanged(direction));
  }
  static Cost cost(const Problem& z, Direction direction) {
    return slots[I]->cost(z.convolution(), exchanged(direction));
  }
  static std::size_t workspace_bytes(const Problem& z, Direction direction) {
    return slots[I]->workspace_bytes(z.convolution(), exchanged(direction));
  }
  static std::size_t prepared_bytes(const Problem& z, Direction direction) {
    return slots[I]->prepared_bytes(z.convolution(), exchanged(direction));
  }
  static bool prepares_for_one_call(const Problem& z, Direction direction) {
    return slots[I]->prepares_for_one_call(z.convolution(), exchanged(direction));
  }
  static void prepare_weights(const PrepareArgs<Problem>& args) {
    const Conv2dProblem conv = args.problem.convolution();
    slots[I]->prepare_weights(
        {conv, exchanged(args.direction), args.w, args.prepared, args.workspace, args.views});
  }
};

template <std::size_t I>
Algorithm<Problem> transposed() {
  const Conv2dAlgorithm& of = *slots[I];
  using F = Functions<I>;
  return {.name = of.name,
          .device = of.device,
          .idea = of.idea,
          .paper = of.paper,
          .supports = F::supports,
          .cost = F::cost,
          .workspace_bytes = F::workspace_bytes,
          .prepared_bytes = of.prepared_bytes == nullptr ? nullptr : F::prepared_bytes,
          .prepare_weights = of.prepare_weights == nullptr ? nullptr : F::prepare_weights,
          .prepares_for_one_call =
              of.prepares_for_one_call == nullptr ? nullptr : F::prepares_for_one_call,
          .error_growth = of.error_growth,
          .one_chain = of.one_chain,
          .exact_on_integers = of.exact_on_integers,
          .deterministic = of.deterministic,
          .auto_ok = of.auto_ok,
          .forward = of.backward_data,
          .backward_data = of.forward,
          .backward_weight = of.backward_weight};
}

template <std::size_t... I>
Algorithm<Problem> transposed(std::size_t slot, std::index_sequence<I...>) {
  Algorithm<Problem> out;
  ((slot == I ? void(out = transposed<I>()) : void()), ...);
  return out;
}

// Integer algorithms compute only forward. Algorithms of pruned weights refuse dense ones.
bool takes_images_and_dense_weights(const Conv2dAlgorithm& algorithm) {
  const bool only_codes = algorithm.takes_mixed_types && algorithm.backward_data == nullptr &&
                          algorithm.backward_weight == nullptr;
  return !only_codes && !algorithm.takes_sparse_weights;
}

// The images of this operator are [N,C,H,W]; an algorithm only for NCHW16c refuses all of them.
bool takes_nchw(const Conv2dAlgorithm& algorithm) {
  if (!algorithm.takes_nchw16c_layout) return true;
  for (const char* text : {"c=16,h=8,w=8,k=16,r=3,s=3,pad=1", "c=16,h=8,w=8,k=16,r=1,s=1",
                           "c=16,h=8,w=8,k=16,r=3,s=3,pad=1,groups=16"}) {
    const Conv2dProblem problem = Conv2dProblem::parse(text);
    for (const Direction direction : kDirections) {
      if (support_of(algorithm, problem, direction).yes) return true;
    }
  }
  return false;
}

// Adds the algorithms of conv2d that are not in the table yet, such as those of a plug-in.
void add_new(Registry<Algorithm<Problem>>& table, DeviceType device) {
  static std::size_t used = 0;
  const Registry<Conv2dAlgorithm>& all = conv2d_algorithms(device);
  for (const auto& [name, algorithm] : all.entries()) {
    if (table.entries().contains(name) || !takes_images_and_dense_weights(algorithm) ||
        !takes_nchw(algorithm)) {
      continue;
    }
    CONVSCOPE_CHECK(used < kSlots, Operator<Problem>::kOperation, "expected at most ", kSlots,
                    " algorithms of conv2d, got more");
    slots[used] = &algorithm;
    table.add(name, transposed(used, std::make_index_sequence<kSlots>()), all.file_of(name));
    ++used;
  }
}

void add_bias(const Tensor& b, const Tensor& y) {
  const DType type = y.dtype() == DType::f64 ? DType::f64 : DType::f32;
  const Tensor per_channel = b.to(type).reshape({b.dim(0), 1, 1});
  if (y.dtype() == type) {
    binary_kernel.get(y.device())(BinaryOp::add, y, per_channel, y);
  } else {
    y.copy_from(elementwise(BinaryOp::add, y.to(type), per_channel).to(y.dtype()));
  }
}

}  // namespace

Registry<Algorithm<ConvTranspose2dProblem>>& Operator<ConvTranspose2dProblem>::algorithms(
    DeviceType device) {
  static Registry<Algorithm<ConvTranspose2dProblem>> cpu("algorithm of transposed convolution");
  static Registry<Algorithm<ConvTranspose2dProblem>> cuda("algorithm of transposed convolution");
  static std::mutex mutex;
  Registry<Algorithm<ConvTranspose2dProblem>>& out = device == DeviceType::cpu ? cpu : cuda;
  const std::lock_guard lock(mutex);
  add_new(out, device);
  return out;
}

void Operator<ConvTranspose2dProblem>::run(const Call<ConvTranspose2dProblem>& call) {
  const Operands& at = call.operands;
  const Conv2dProblem conv = call.problem.convolution();
  std::optional<ShortLoops> short_loops;
  if (at.device().type == DeviceType::cpu) short_loops.emplace(conv.nominal_flops());
  switch (call.direction) {
    case Direction::forward:
      call.algorithm.forward({conv,
                              at.input(0),
                              at.input(1),
                              at.output(0),
                              call.workspace,
                              call.prepared,
                              call.views,
                              {}});
      if (at.in[2].defined()) add_bias(at.in[2].values, at.out[0].values);
      if (at.epilogue.empty()) return;
      return conv2d_epilogue_kernel.get(at.device())(at.epilogue, at.out[0].values);
    case Direction::backward_data:
      return call.algorithm.backward_data({conv,
                                           at.input(0),
                                           at.input(1),
                                           nullptr,
                                           at.output(0),
                                           call.workspace,
                                           {},
                                           call.prepared,
                                           call.views,
                                           {}});
    case Direction::backward_weight:
      return call.algorithm.backward_weight({conv,
                                             at.input(1),
                                             at.input(0),
                                             at.output(0),
                                             at.accumulate,
                                             call.workspace,
                                             call.views,
                                             {},
                                             {}});
  }
}

Operands Operator<ConvTranspose2dProblem>::magnitudes(const ConvTranspose2dProblem& problem,
                                                      Direction direction,
                                                      const Operands& operands) {
  Operands of_convolution = operands;
  if (direction == Direction::backward_weight) {
    std::swap(of_convolution.in[0], of_convolution.in[1]);
  }
  const Direction its = exchanged(direction);
  return over_tiles(of_convolution, problem.convolution().operands(its), its);
}

}  // namespace convscope
