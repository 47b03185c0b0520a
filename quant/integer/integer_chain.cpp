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
#include "quant/integer/code_ops.h"
#include "quant/integer/integer_op.h"

namespace convscope {
namespace {

class IntegerChainOp final : public PlanOp {
 public:
  explicit IntegerChainOp(std::vector<std::unique_ptr<PlanOp>> layers) : ops_(std::move(layers)) {}

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
  bool reads_any_layout() const override { return true; }

  void forward(Emitter& builder) override {
    std::vector<Conv2dProblem> problems;
    for (std::size_t i = 0; i < ops_.size(); ++i) problems.push_back(at(i).parts().problem);
    const auto chain = std::make_shared<Int8Chain>(problems);
    Slot prepared = kNoSlot;
    builder.prologue([&] {
      prepared = builder.slot({static_cast<std::int64_t>(chain->prepared_bytes())}, DType::u8);
      for (std::size_t i = 0; i < ops_.size(); ++i) emit_prepare(builder, chain, i, prepared);
    });
    void* const workspace = builder.workspace(chain->workspace_bytes());
    builder.call([chain, images = builder.images(), y = builder.value(output),
                  weights = builder.use(prepared), workspace] {
      chain->run(static_cast<const float*>(*images), static_cast<std::uint8_t*>(y.raw_data()),
                 workspace);
    });
  }
  void backward(Emitter&) override {}

 private:
  const IntegerOp& at(std::size_t i) const { return static_cast<const IntegerOp&>(*ops_[i]); }

  void emit_prepare(Emitter& builder, const std::shared_ptr<Int8Chain>& chain, std::size_t i,
                    Slot prepared) const {
    const IntegerLayer& one = at(i).parts();
    const IntegerOp::Scales scales = at(i).emit_scales(builder);
    const Slot codes = builder.temporary(builder.shape(one.w), DType::i8);
    at(i).emit_codes(builder, scales, codes);
    const bool has_b = scales.b != kNoSlot;
    builder.call([chain, i, problem = one.problem, x_format = one.x_format,
                  y_format = *one.y_format,
                  epilogue = Conv2dEpilogue{.relu = one.relu, .most = one.most},
                  codes = builder.use(codes), b = has_b ? builder.use(scales.b) : Tensor(),
                  x_step = builder.use(scales.x_step), w_steps = builder.use(scales.w_steps),
                  y_step = builder.use(scales.y_step), to = builder.use(prepared)] {
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

  std::vector<std::unique_ptr<PlanOp>> ops_;  // IntegerOps
};

// A convolution that can be part of a chain, and the max-pool after it, if there is one.
struct Link {
  const PlanOp *conv = nullptr, *pool = nullptr;
};

Link link_of(const Graph& graph, const PlanOp* op, bool first) {
  const auto* const conv = dynamic_cast<const IntegerOp*>(op);
  if (conv == nullptr) return {};
  const IntegerLayer& layer = conv->parts();
  if (layer.kind != "conv2d" || layer.is_named || layer.residual != kNoValue ||
      !Int8Chain::refusal(layer.problem, first).empty() ||
      (first && layer.x != Graph::input())) {
    return {};
  }
  const auto* const pool = dynamic_cast<const CodesPoolOp*>(only_reader(graph, conv->output));
  if (pool == nullptr || !halves(pool->window())) return {};
  return {conv, pool};
}

std::vector<Link> find_from(const Graph& graph, const PlanOp* op) {
  std::vector<Link> links;
  for (;;) {
    const Link link = link_of(graph, op, links.empty());
    if (link.conv == nullptr) return links;
    links.push_back(link);
    op = only_reader(graph, link.pool->output);
    if (op == nullptr || op->inputs[0] != link.pool->output) return links;
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
  const PlanOp* const last = links.back().pool;
  const ValueId output = last->output;
  const std::string layer = links.front().conv->layer;
  std::vector<std::unique_ptr<PlanOp>> kept, rest;
  for (std::unique_ptr<PlanOp>& op : graph.ops()) {
    const PlanOp* const given = op.get();
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
    chain->output = output;
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

const bool registered = register_plan_rewrite(
    {.name = kInt8Chain, .device = DeviceType::cpu, .run = join_first_layers});

}  // namespace
}  // namespace convscope
