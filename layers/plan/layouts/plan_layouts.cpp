// SPDX-License-Identifier: Apache-2.0
// plan_layouts.cpp: chooses which operations of a compiled step work on NCHW16c or f32 NHWC images
// (layers/dispatch/activation_layout.h), and inserts copies where layouts meet.
//
// Idea       Each operation has a cost in each layout, and each value has the cost of a copy to the
//            other layout. A minimum cut (layout_cut.h) finds the choice with the lowest total. So
//            the network is in NCHW16c from the first to the last convolution that is faster in
//            NCHW16c, or not at all. Users see [N,C,H,W]: images arrive and results leave in that
//            layout.
// Numbers    All costs are estimates. So a resumed run, which reads its measured peaks from
//            choices.json, has the same layouts and the same bits, and `explain` times nothing.
// On a GPU   f32 kernels read NCHW. Integer operations use NCHW16c, and their f32 numbers are
//            copied for other readers. Networks in tf32 may use NHWC: products then read fp16
//            operands that are made from such images without a transposition, once for all
//            readers. Batch norm writes the operands with its result; elsewhere, such as after a
//            copy, an extra pass makes them.
// Not here   the algorithm of a convolution, which its policy chooses for each layout
//            (Conv2dOp::layout_ms).
#include <algorithm>
#include <map>

#include "framework/precision.h"
#include "layers/plan/layouts/layout_cut.h"
#include "layers/plan/layouts/layout_op.h"
#include "layers/plan/pipeline.h"

namespace convscope {
namespace {

using enum ActivationLayout;

// Returns whether `value` is an image whose layout can be chosen. Codes are always NCHW16c.
bool is_image(const Graph& graph, ValueId value) {
  return graph.shape(value).rank() == 4 && !graph.is_of_parameters(value) &&
         graph.dtype(value) == DType::f32;
}

// The milliseconds of an operation in each layout; times that do not depend on the layout are left
// out.
struct Costs {
  double plain = 0, stored = kImpossible;
  // The additional cost of an operation in the stored layout that reads its first input as
  // [N,C,H,W] without a copy.
  double plain_input = kImpossible;
  Format format = {};  // of the stored layout, else of [N,C,H,W]
};

class Layouts {
 public:
  // `stored` is the alternative to [N,C,H,W]: `nchw16c` or `nhwc`.
  Layouts(Graph& graph, ActivationLayout stored) : graph_(graph), stored_(stored) {
    int number = 0;
    for (const auto& op : graph_.ops()) {
      costs_[op.get()] = costs_of(*op);
      producers_[op->output()] = number++;
    }
  }

  void choose() {
    std::vector<CutNode> nodes;
    std::vector<CutEdge> edges;
    const auto& ops = graph_.ops();
    for (const auto& op : ops) {
      const Costs& costs = costs_.at(op.get());
      nodes.push_back({costs.plain, costs.stored + unwritten_operands_ms(*op)});
    }
    const int plain = static_cast<int>(nodes.size());  // provides the images, takes the result
    nodes.push_back({0, kImpossible});
    const auto producer = [&](ValueId value) {
      const auto at = producers_.find(value);
      return at == producers_.end() ? plain : at->second;
    };
    for (int i = 0; i < plain; ++i) {
      const Operation& op = *ops[static_cast<std::size_t>(i)];
      const Format& format = costs_.at(&op).format;
      if (format.any_input) continue;
      for (std::size_t at = 0; at < op.inputs.size(); ++at) {
        const ValueId input = op.inputs[at];
        if (!is_image(graph_, input)) continue;
        const double copy = conversion_ms(graph_, input, stored_);
        const int reader = format.plain_inputs >> at & 1 ? plain : i;
        edges.push_back({producer(input), reader,
                         std::min(copy, plain_input_ms(op, input)) + lost_operands_ms(op, at),
                         copy + lost_gradient_operands_ms(op, input)});
      }
    }
    if (is_image(graph_, graph_.result())) {
      const double copy = conversion_ms(graph_, graph_.result(), stored_);
      edges.push_back({producer(graph_.result()), plain, copy, copy});
    }
    const std::vector<bool> stored = cheapest_states(nodes, edges);
    for (int i = 0; i < plain; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (stored[at]) graph_.set_layout(ops[at]->output(), stored_);
    }
  }

  // Passes the chosen layouts to the operations and adds the copies.
  void apply() {
    std::map<std::pair<ValueId, ActivationLayout>, ValueId> copies;
    std::vector<std::unique_ptr<Operation>> ops;
    std::vector<Operation*> reshapes;
    for (const auto& op : graph_.ops()) {
      if (graph_.is_shared(*op)) reshapes.push_back(op.get());
    }
    for (std::unique_ptr<Operation>& op : graph_.ops()) {
      const ActivationLayout layout = graph_.layout(op->output());
      for (std::size_t i = 0; i < op->inputs.size(); ++i) {
        ValueId& input = op->inputs[i];
        const Format& format = costs_.at(op.get()).format;
        const ActivationLayout wanted = format.plain_inputs >> i & 1 ? nchw : layout;
        if (!is_image(graph_, input) || graph_.layout(input) == wanted) continue;
        if (format.any_input) continue;
        if (wanted == stored_ &&
            plain_input_ms(*op, input) <= conversion_ms(graph_, input, stored_)) {
          continue;
        }
        const auto [at, is_new] = copies.try_emplace({input, wanted}, kNoValue);
        if (is_new) {
          at->second =
              graph_.add_stored(input, wanted, has_one_order(graph_.shape(input), stored_));
          ops.push_back(copy_of(*op, input, at->second, wanted));
        }
        input = at->second;
      }
      if (layout != nchw) op->set_layouts(graph_);
      ops.push_back(std::move(op));
    }
    graph_.ops() = std::move(ops);
    for (Operation* op : reshapes) graph_.share(op->output(), op->inputs[0]);
    const ValueId result = graph_.result();
    if (graph_.layout(result) == nchw) return;
    const ValueId seen =
        graph_.add_stored(result, nchw, has_one_order(graph_.shape(result), stored_));
    graph_.ops().push_back(copy_of(*graph_.ops().back(), result, seen, nchw));
    graph_.set_result(seen);
  }

 private:
  Costs costs_of(const Operation& op) const {
    const std::optional<Format> plain = op.format(graph_, nchw),
                                stored = op.format(graph_, stored_);
    Costs out;
    if (stored || plain) out.format = stored ? *stored : *plain;
    if (!is_image(graph_, op.output()) || !knows_layout(out.format)) return out;
    out.plain = ms_of(plain);
    out.stored = ms_of(stored);
    if (stored && stored->plain_input_ms) {
      out.plain_input = std::max(0.0, *stored->plain_input_ms - stored->ms);
    }
    return out;
  }

  // On a GPU the only operations with kernels for NCHW16c are integer operations, which read any
  // layout.
  bool knows_layout(const Format& format) const {
    return graph_.device().type == DeviceType::cpu || stored_ == nhwc || format.any_input;
  }
  static double ms_of(const std::optional<Format>& format) {
    return format ? format->ms : kImpossible;
  }

  // Returns the additional cost of reading this input as [N,C,H,W] without a copy, for an operation
  // in the stored layout.
  double plain_input_ms(const Operation& op, ValueId input) const {
    return input == op.inputs[0] ? costs_.at(&op).plain_input : kImpossible;
  }

  // ---- fp16 operands of products (dispatch/layout/half_operands.h), for NHWC ----

  const Operation* producer_of(ValueId value) const {
    const auto at = producers_.find(value);
    if (at == producers_.end()) return nullptr;
    return graph_.ops()[static_cast<std::size_t>(at->second)].get();
  }
  const Format& format_of(const Operation& op) const { return costs_.at(&op).format; }
  // The fp16 operands of an image are made once, so each reader pays a share of their cost.
  double part_of_operands_ms(ValueId image) const {
    const auto readers = std::ranges::count_if(graph_.ops(), [&](const auto& op) {
      return format_of(*op).reads_image_operands && op->inputs[0] == image;
    });
    return operands_ms(graph_, image) / static_cast<double>(readers);
  }
  bool writes_operands(const Operation* op) const {
    return op != nullptr && format_of(*op).writes_operands;
  }
  bool gradient_operands_are_written(ValueId value) const {
    return std::ranges::any_of(graph_.ops(), [&](const auto& op) {
      return !op->inputs.empty() && op->inputs[0] == value && writes_operands(op.get());
    });
  }

  // Returns the cost of making the operands that this operation reads and that no operation writes
  // along with its result.
  double unwritten_operands_ms(const Operation& op) const {
    const Format& reads = format_of(op);
    double ms = 0;
    if (reads.reads_image_operands && !writes_operands(producer_of(op.inputs[0]))) {
      ms += part_of_operands_ms(op.inputs[0]);
    }
    if (reads.reads_gradient_operands && !gradient_operands_are_written(op.output())) {
      ms += operands_ms(graph_, op.output());
    }
    return ms;
  }
  // Returns the cost of making operands that the producer would have written along with its result
  // if the producer worked in NHWC.
  double lost_operands_ms(const Operation& op, std::size_t at) const {
    const bool lost =
        at == 0 && format_of(op).reads_image_operands && writes_operands(producer_of(op.inputs[0]));
    return lost ? part_of_operands_ms(op.inputs[0]) : 0;
  }
  // Returns the cost of making the operands of the input's gradient, which this operation would
  // have written for `producer` in NHWC.
  double lost_gradient_operands_ms(const Operation& op, ValueId input) const {
    const Operation* const producer = producer_of(input);
    const bool lost =
        producer != nullptr && format_of(*producer).reads_gradient_operands && writes_operands(&op);
    return lost ? operands_ms(graph_, input) : 0;
  }

  static std::unique_ptr<Operation> copy_of(const Operation& reader, ValueId from, ValueId to,
                                            ActivationLayout layout) {
    auto out = std::make_unique<LayoutOp>(layout);
    out->layer = reader.layer;
    out->inputs = {from};
    out->outputs = {to};
    return out;
  }

  Graph& graph_;
  ActivationLayout stored_;
  std::map<const Operation*, Costs> costs_;
  std::map<ValueId, int> producers_;  // indices of operations, before copies are added
};

// Returns the layout besides NCHW that the operations of the graph support, or nchw if there is
// none.
ActivationLayout layout_to_ask(const Graph& graph) {
  if (graph.device().type == DeviceType::cpu) return nchw16c;
  const auto says = [&](ActivationLayout layout, const auto& holds) {
    return std::ranges::any_of(graph.ops(), [&](const auto& op) {
      const std::optional<Format> format = op->format(graph, layout);
      return format && holds(*format);
    });
  };
  if (says(nchw16c, [](const Format& format) { return format.any_input; })) return nchw16c;
  if (says(nhwc, [](const Format& format) { return is_half(format.type); })) return nchw;
  return says(nhwc, [](const Format& format) { return format.has_own_kernels; }) ? nhwc : nchw;
}

void choose_layouts(Graph& graph) {
  const ActivationLayout stored = layout_to_ask(graph);
  if (stored == nchw) return;
  Layouts layouts(graph, stored);
  layouts.choose();
  layouts.apply();
}

// Runs after all rewrites that create chains.
const bool registered = register_pass("layouts", choose_layouts);

}  // namespace
}  // namespace convscope
