// SPDX-License-Identifier: Apache-2.0
// half_layouts.cpp: chooses which operations of a compiled step on a GPU work on fp16/bf16 NHWC
// images (layers/dispatch/activation_layout.h), and inserts copies at the boundaries.
//
// Idea       A convolution in half precision reads fp16/bf16 NHWC. Later operations keep that type
//            while they have kernels for it: batch norm, activations, sums, pools. All other
//            operations read f32 NCHW, after a copy. So a network has one copy at its beginning and
//            one at its end, and any operation may be in between.
// Types      Parameters, statistics, linear layers and the loss stay f32; so do all sums. A value,
//            and its gradient, is rounded to fp16/bf16 when it is stored.
// Not here   plan_layouts.cpp chooses NCHW16c images by estimates. This file estimates nothing,
//            because tensor cores and copies of 16 bytes need NHWC.
#include <algorithm>
#include <map>
#include <tuple>

#include "framework/precision.h"
#include "layers/plan/layouts/layout_op.h"
#include "layers/plan/pipeline.h"

namespace convscope {
namespace {

using enum ActivationLayout;

bool is_image(const Graph& graph, ValueId value) {
  return graph.shape(value).rank() == 4 && !graph.is_of_parameters(value) &&
         (graph.dtype(value) == DType::f32 || is_half(graph.dtype(value)));
}

// How one value is stored.
struct Stored {
  DType type = DType::f32;
  ActivationLayout layout = nchw;
  bool operator==(const Stored&) const = default;
  bool operator<(const Stored& other) const {
    return std::tie(type, layout) < std::tie(other.type, other.layout);
  }
};

Stored stored(const Graph& graph, ValueId value) {
  return {graph.dtype(value), graph.layout(value)};
}

// Returns how the operation stores its images. The storage of its inputs has been chosen before.
Stored wanted_by(const Graph& graph, const Operation& op, const std::optional<Format>& format) {
  if (format && is_half(format->type)) return {format->type, nhwc};
  if (!format || !is_image(graph, op.output())) return {};
  for (const ValueId input : op.inputs) {
    if (is_image(graph, input) && is_half(graph.dtype(input))) return stored(graph, input);
  }
  return {};
}

class HalfLayouts {
 public:
  explicit HalfLayouts(Graph& graph) : graph_(graph) {}

  void run() {
    for (std::unique_ptr<Operation>& op : graph_.ops()) {
      const bool is_reshape = graph_.is_shared(*op);
      const std::optional<Format> format = op->format(graph_, nhwc);
      const Stored wanted = wanted_by(graph_, *op, format);
      const unsigned plain_inputs = format ? format->plain_inputs : 0;
      for (std::size_t i = 0; i < op->inputs.size(); ++i) {
        if (!is_image(graph_, op->inputs[i])) continue;
        op->inputs[i] = as(op->inputs[i], plain_inputs >> i & 1 ? Stored{} : wanted, op->layer);
      }
      if (is_half(wanted.type)) graph_.set_stored(op->output(), wanted.type, wanted.layout);
      if (is_reshape) graph_.share(op->output(), op->inputs[0]);
      ops_.push_back(std::move(op));
    }
    const ValueId result = graph_.result();
    if (is_image(graph_, result)) graph_.set_result(as(result, {}, ops_.back()->layer));
    graph_.ops() = std::move(ops_);
  }

 private:
  // Returns the value as `wanted`: itself, or the result of a copy. Between fp16 and bf16 the copy
  // goes through f32.
  ValueId as(ValueId value, const Stored& wanted, const std::string& layer) {
    const Stored now = stored(graph_, value);
    if (now == wanted || (now.layout != nchw && now.layout != nhwc)) return value;
    if (is_half(now.type) && is_half(wanted.type)) value = as(value, {}, layer);
    const auto [at, is_new] = copies_.try_emplace({value, wanted}, kNoValue);
    if (!is_new) return at->second;
    at->second = graph_.add_stored(value, wanted.layout, /*shared=*/false, wanted.type);
    auto copy = std::make_unique<LayoutOp>(wanted.layout, wanted.type);
    copy->layer = layer;
    copy->inputs = {value};
    copy->outputs = {at->second};
    ops_.push_back(std::move(copy));
    return at->second;
  }

  Graph& graph_;
  std::map<std::pair<ValueId, Stored>, ValueId> copies_;
  std::vector<std::unique_ptr<Operation>> ops_;
};

void choose_half_layouts(Graph& graph) {
  const auto wants = [&](const auto& op) {
    const std::optional<Format> format = op->format(graph, nhwc);
    return format && is_half(format->type);
  };
  if (std::ranges::any_of(graph.ops(), wants)) HalfLayouts(graph).run();
}

// Runs after the rewrites that create chains: a chain of few-channel layers replaces operations and
// needs no fp16/bf16 NHWC images.
const bool registered = register_pass("half_layouts", choose_half_layouts);

}  // namespace
}  // namespace convscope
