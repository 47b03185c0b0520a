// SPDX-License-Identifier: Apache-2.0
// int8_chain.cpp: runs the first layers of a small network on codes as one operation of a graph on
// a CPU.
//
//   conv f32:i8:i32:u8 -> max-pool on codes -> conv u8:i8:i32:u8 -> max-pool on codes -> ..
//   -> one pass over the images (layers/conv2d/int8_chain.h)
//
// Same       codes as the operations that it replaces
// Not here   convolutions without a following 2x2 max-pool, with many channels, with a stride, or
//            with another algorithm in their policy. They stay unchanged
#include "layers/conv2d/int8_chain.h"

#include "framework/ops/codes/quantize_op.h"
#include "layers/conv2d/fusions/conv2d_chain.h"
#include "layers/plan/pipeline.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {
namespace {

class Int8ChainOp final : public Operation {
 public:
  Int8ChainOp() : Operation(kInt8Chain) {}
  // Keeps the replaced operations: each convolution and its max-pool.
  void keep(std::vector<std::unique_ptr<Operation>> replaced) {
    ops_ = std::move(replaced);
    for (const auto& op : ops_) {
      if (auto* const conv = as<Conv2dOp>(op.get())) convs_.push_back(conv);
    }
  }

  std::string text() const override {
    std::string out = cat(kInt8Chain, ":");
    for (const Conv2dOp* conv : convs_) {
      out +=
          cat(conv == convs_.front() ? " " : "; ", conv->layer, " conv2d ",
              conv->problem().types->text(), conv->on_codes()->folds_norm ? " + batch_norm2d" : "",
              conv->relu() ? " + relu" : "", " + max_pool2d");
    }
    return out;
  }
  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<ChainLayer> layers;
    for (const Conv2dOp* one : convs_) {
      layers.push_back({one->layer, one->problem().nominal_flops()});
    }
    return chain_kernels(graph, kInt8Chain, layers, false, ActivationLayout::nchw16c);
  }
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw);
  }

  void forward(Emitter& emitter) override {
    std::vector<Conv2dProblem> problems;
    for (const Conv2dOp* conv : convs_) problems.push_back(conv->problem());
    const auto chain = std::make_shared<Int8Chain>(problems);
    Slot prepared = kNoSlot;
    emitter.prologue([&] {
      prepared = emitter.slot({static_cast<std::int64_t>(chain->prepared_bytes())}, DType::u8);
      for (std::size_t i = 0; i < convs_.size(); ++i) {
        emit_preparation_of(emitter, *convs_[i], chain, i, prepared);
      }
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
  static void emit_preparation_of(Emitter& emitter, const Conv2dOp& conv,
                                  const std::shared_ptr<Int8Chain>& chain, std::size_t i,
                                  Slot prepared) {
    const Tensor b = conv.bias() != kNoValue ? emitter.value(conv.bias()) : Tensor();
    emitter.call([chain, i, problem = conv.problem(),
                  epilogue = Conv2dEpilogue{.relu = conv.relu(), .most = conv.most()},
                  w = emitter.value(conv.weight()), b, views = conv.views(emitter),
                  to = emitter.use(prepared)] {
      chain->prepare(i,
                     {.problem = problem,
                      .x = nullptr,
                      .w = w.raw_data(),
                      .b = b.defined() ? b.data<double>() : nullptr,
                      .y = nullptr,
                      .workspace = nullptr,
                      .epilogue = epilogue,
                      .views = views},
                     to.raw_data());
    });
  }

  std::vector<std::unique_ptr<Operation>> ops_;
  std::vector<const Conv2dOp*> convs_;
};

// A convolution that can be part of a chain, and the max-pool after it; null: there is none.
struct Int8Link {
  Conv2dOp* conv = nullptr;
  MaxPool* pool = nullptr;
};

Int8Link link_of(const Graph& graph, Operation* op, bool first) {
  auto* const conv = as<Conv2dOp>(op);
  if (conv == nullptr || !conv->on_codes() || conv->on_codes()->layer_kind != "conv2d" ||
      conv->on_codes()->is_named || conv->residual() != kNoValue ||
      !Int8Chain::refusal(conv->problem(), first).empty() ||
      (first && conv->x() != Graph::input())) {
    return {};
  }
  auto* const pool = as<MaxPool>(graph.only_reader(conv->output()));
  if (pool == nullptr || !pool->window().halves()) return {};
  return {conv, pool};
}

std::vector<Operation*> find_from(const Graph& graph, Operation* op) {
  std::vector<Operation*> chain;
  for (;;) {
    const Int8Link link = link_of(graph, op, chain.empty());
    if (link.conv == nullptr) return chain;
    chain.push_back(link.conv);
    chain.push_back(link.pool);
    op = graph.only_reader(link.pool->output());
    if (op == nullptr || op->inputs[0] != link.pool->output()) return chain;
  }
}

void join_first_layers(Graph& graph) {
  if (graph.training()) return;
  for (const auto& op : graph.ops()) {
    const std::vector<Operation*> chain = find_from(graph, op.get());
    if (chain.empty()) continue;
    auto joined = std::make_unique<Int8ChainOp>();
    joined->layer = chain.front()->layer;
    Int8ChainOp& one = *joined;
    return one.keep(graph.replace(chain, std::move(joined)));
  }
}

const bool registered = register_pass(kInt8Chain, join_first_layers);

}  // namespace
}  // namespace convscope
