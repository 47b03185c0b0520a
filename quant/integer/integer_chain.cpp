// SPDX-License-Identifier: Apache-2.0
// integer_chain.cpp: runs the first layers of a small network on integers as one operation of a
// graph on a CPU.
//
//   conv f32:i8:i32:u8 -> max-pool on codes -> conv u8:i8:i32:u8 -> max-pool on codes -> ..
//   -> one pass over the images (layers/conv2d/int8_chain.h)
//
// Same       codes as the operations that it replaces
// Not here   convolutions without a following 2x2 max-pool, with many channels, with a stride, or
//            with another algorithm in their policy. They stay unchanged
#include <algorithm>

#include "layers/conv2d/conv2d_chain.h"
#include "layers/conv2d/int8_chain.h"
#include "layers/plan/pipeline.h"
#include "quant/integer/code_ops.h"
#include "quant/integer/integer_op.h"

namespace convscope {
namespace {

class IntegerChainOp final : public Operation {
 public:
  explicit IntegerChainOp(std::vector<std::unique_ptr<Operation>> layers)
      : Operation(kInt8Chain), ops_(std::move(layers)) {}

  std::string text() const override {
    std::string out = cat(kInt8Chain, ":");
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      const IntegerLayer& one = at(i).parts();
      out += cat(i == 0 ? " " : "; ", at(i).layer, " ", one.kind, " ", one.problem.types->text(),
                 one.norm ? " + batch_norm2d" : "", one.relu ? " + relu" : "", " + max_pool2d");
    }
    return out;
  }
  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<std::string> layers;
    for (const auto& op : ops_) layers.push_back(op->layer);
    std::vector<RanKernel> out = chain_kernels(graph, kInt8Chain, layers, false);
    for (RanKernel& one : out) one.layout = ActivationLayout::nchw16c;
    return out;
  }
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw);
  }

  void forward(Emitter& emitter) override {
    std::vector<Conv2dProblem> problems;
    for (std::size_t i = 0; i < ops_.size(); ++i) problems.push_back(at(i).parts().problem);
    const auto chain = std::make_shared<Int8Chain>(problems);
    Slot prepared = kNoSlot;
    emitter.prologue([&] {
      prepared = emitter.slot({static_cast<std::int64_t>(chain->prepared_bytes())}, DType::u8);
      for (std::size_t i = 0; i < ops_.size(); ++i) emit_prepare(emitter, chain, i, prepared);
    });
    void* const workspace = emitter.workspace(chain->workspace_bytes());
    emitter.call([chain, state = emitter.state(), y = emitter.value(output()),
                  weights = emitter.use(prepared), workspace] {
      chain->run(static_cast<const float*>(state->images), static_cast<std::uint8_t*>(y.raw_data()),
                 workspace);
    });
  }
  void backward(Emitter&) override {}

 private:
  const IntegerOp& at(std::size_t i) const { return static_cast<const IntegerOp&>(*ops_[i]); }

  void emit_prepare(Emitter& emitter, const std::shared_ptr<Int8Chain>& chain, std::size_t i,
                    Slot prepared) const {
    const IntegerLayer& one = at(i).parts();
    const IntegerOp::Scales scales = at(i).emit_scales(emitter);
    const Slot codes = emitter.temporary(emitter.graph().shape(one.w), DType::i8);
    at(i).emit_codes(emitter, scales, codes);
    const bool has_b = scales.b != kNoSlot;
    emitter.call([chain, i, problem = one.problem, x_format = one.x_format,
                  y_format = *one.y_format,
                  epilogue = Conv2dEpilogue{.relu = one.relu, .most = one.most},
                  codes = emitter.use(codes), b = has_b ? emitter.use(scales.b) : Tensor(),
                  x_step = emitter.use(scales.x_step), w_steps = emitter.use(scales.w_steps),
                  y_step = emitter.use(scales.y_step), to = emitter.use(prepared)] {
      OperandViews views;
      views.x = {.scales = x_step.data<double>(), .low = x_format.low(), .high = x_format.high()};
      views.w = {.scales = w_steps.data<double>(), .per_channel = true};
      views.y = {.scales = y_step.data<double>(), .low = y_format.low(), .high = y_format.high()};
      chain->prepare(i,
                     {.problem = problem,
                      .x = nullptr,
                      .w = codes.raw_data(),
                      .b = b.defined() ? b.data<double>() : nullptr,
                      .y = nullptr,
                      .workspace = nullptr,
                      .epilogue = epilogue,
                      .views = views},
                     to.raw_data());
    });
  }

  std::vector<std::unique_ptr<Operation>> ops_;  // IntegerOps
};

// A convolution that can be part of a chain, and the max-pool after it, if there is one.
struct Link {
  const Operation *conv = nullptr, *pool = nullptr;
};

Link link_of(const Graph& graph, const Operation* op, bool first) {
  const auto* const conv = as<IntegerOp>(op);
  if (conv == nullptr) return {};
  const IntegerLayer& layer = conv->parts();
  if (layer.kind != "conv2d" || layer.is_named || layer.residual != kNoValue ||
      !Int8Chain::refusal(layer.problem, first).empty() || (first && layer.x != Graph::input())) {
    return {};
  }
  const auto* const pool =
      as<CodesPoolOp>(static_cast<const Operation*>(graph.only_reader(conv->output())));
  if (pool == nullptr || !halves(pool->window())) return {};
  return {conv, pool};
}

std::vector<Link> find_from(const Graph& graph, const Operation* op) {
  std::vector<Link> links;
  for (;;) {
    const Link link = link_of(graph, op, links.empty());
    if (link.conv == nullptr) return links;
    links.push_back(link);
    op = graph.only_reader(link.pool->output());
    if (op == nullptr || op->inputs[0] != link.pool->output()) return links;
  }
}

// Inserts the chain at the position of the last max-pool.
void replace(Graph& graph, const std::vector<Link>& links) {
  std::vector<ValueId> inputs{links.front().conv->inputs[0]};
  std::vector<std::string> layers;
  for (const Link& link : links) {
    inputs.insert(inputs.end(), link.conv->inputs.begin() + 1, link.conv->inputs.end());
    layers.insert(layers.end(), link.conv->all_layers.begin(), link.conv->all_layers.end());
  }
  const Operation* const last = links.back().pool;
  const ValueId output = last->output();
  const std::string layer = links.front().conv->layer;
  std::vector<std::unique_ptr<Operation>> kept, rest;
  for (std::unique_ptr<Operation>& op : graph.ops()) {
    const Operation* const given = op.get();
    if (std::ranges::any_of(links, [&](const Link& link) { return link.conv == given; })) {
      kept.push_back(std::move(op));
    } else if (std::ranges::none_of(links, [&](const Link& l) { return l.pool == given; })) {
      rest.push_back(std::move(op));
    }
    if (given != last) continue;
    auto chain = std::make_unique<IntegerChainOp>(std::move(kept));
    chain->layer = layer;
    chain->all_layers = layers;
    chain->inputs = inputs;
    chain->outputs = {output};
    rest.push_back(std::move(chain));
  }
  graph.ops() = std::move(rest);
}

void join_first_layers(Graph& graph) {
  if (graph.training()) return;
  for (const auto& op : graph.ops()) {
    const std::vector<Link> links = find_from(graph, op.get());
    if (!links.empty()) return replace(graph, links);
  }
}

const bool registered = register_pass(kInt8Chain, join_first_layers);

}  // namespace
}  // namespace convscope
