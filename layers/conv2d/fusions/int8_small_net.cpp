// SPDX-License-Identifier: Apache-2.0
// int8_small_net.cpp: runs a whole small network on codes as one operation of a graph on a GPU.
//
//   quantise -> conv int8_gemm -> max-pool on codes -> .. -> linear int8_gemm -> logits
//   -> one kernel (layers/conv2d/int8_small_net.h)
//
// Same       codes and logits as the operations that it replaces
// Not here   networks that do not fit into the shared memory of a thread block, whose images have
//            other readers, or whose policy names another algorithm. They stay unchanged
#include "layers/conv2d/int8_small_net.h"

#include <algorithm>

#include "framework/ops/codes/quantize_op.h"
#include "layers/conv2d/fusions/conv2d_chain.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/plan/pipeline.h"
#include "layers/pool2d/pool2d.h"

namespace convscope {
namespace {

int small(std::int64_t size) { return static_cast<int>(std::min<std::int64_t>(size, 1 << 20)); }

// Sets the sizes and bounds of a stage in z, but no pointers. Returns false if the layer cannot be
// a stage of the kernel.
bool describe_stage(const Graph& graph, const Conv2dOp& layer, SmallNetStage& z) {
  const Conv2dProblem& problem = layer.problem();
  if (layer.on_codes()->is_named || layer.residual() != kNoValue || problem.groups != 1) {
    return false;
  }
  z.is_linear = layer.on_codes()->layer_kind == "linear";
  z.c = small(problem.c);
  z.h = small(problem.h);
  z.w = small(problem.w);
  z.k = small(problem.k);
  z.relu = layer.relu();
  z.most = layer.most();
  z.x_is_signed = problem.types->x == DType::i8;
  if (const auto& y = graph.desc(layer.output()).quantization) {
    z.low = y->low;
    z.high = y->high;
  } else {
    z.y_is_codes = false;
  }
  if (z.is_linear) return true;
  z.r = small(problem.r);
  z.p = small(problem.p());
  z.q = small(problem.q());
  z.pad_top = small(problem.pad_top);
  z.pad_left = small(problem.pad_left);
  const std::int64_t most_pad =
      std::max({problem.pad_top, problem.pad_left, problem.pad_bottom, problem.pad_right});
  return problem.r == problem.s && problem.stride_h == 1 && problem.stride_w == 1 &&
         problem.dilation_h == 1 && problem.dilation_w == 1 && most_pad < problem.r;
}

class SmallNetOp final : public Operation {
 public:
  explicit SmallNetOp(const SmallNet& net) : Operation(kSmallNet), net_(net) {}
  // Keeps the replaced operations: the quantiser of the images, layers and max-pools.
  void keep(std::vector<std::unique_ptr<Operation>> replaced) {
    ops_ = std::move(replaced);
    for (const auto& op : ops_) {
      if (auto* const conv = as<Conv2dOp>(op.get())) layers_.push_back(conv);
    }
  }

  std::string text() const override {
    std::string out = "in one kernel: quantise";
    for (int i = 0; i < net_.stages; ++i) {
      const Conv2dOp& one = at(i);
      out += cat("; ", one.layer, " ", one.on_codes()->layer_kind, " ", one.problem().types->text(),
                 one.on_codes()->folds_norm ? " + batch_norm2d" : "", one.relu() ? " + relu" : "",
                 net_.stage[i].pools ? " + max_pool2d" : "");
    }
    return out;
  }
  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<ChainLayer> layers;
    for (const Conv2dOp* one : layers_) {
      layers.push_back({one->layer, one->problem().nominal_flops()});
    }
    return chain_kernels(graph, kSmallNet, layers, false, ActivationLayout::nchw16c);
  }
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw);
  }

  void forward(Emitter& emitter) override {
    SmallNet net = net_;
    std::vector<Slot> words;
    emitter.prologue([&] {
      for (int i = 0; i < net.stages; ++i) {
        words.push_back(emitter.slot({small_net::weight_words(net.stage[i])}, DType::i32));
        emitter.call([run = small_net_pack_kernel.get(emitter.device()), z = net.stage[i],
                      codes = emitter.value(at(i).weight()), to = emitter.use(words.back())] {
          run(z, static_cast<const std::int8_t*>(codes.raw_data()),
              static_cast<unsigned*>(to.raw_data()));
        });
      }
    });
    for (int i = 0; i < net.stages; ++i) {
      SmallNetStage& z = net.stage[i];
      const OperandViews views = at(i).views(emitter);
      z.s_x = views.x.scales;
      z.s_w = views.w.scales;
      z.s_y = views.y.scales;
      z.b = at(i).bias() == kNoValue ? nullptr : emitter.value(at(i).bias()).data<double>();
      const Tensor packed = emitter.use(words[static_cast<std::size_t>(i)]);
      z.words = static_cast<const unsigned*>(packed.raw_data());
    }
    net.image_step = net.stage[0].s_x;
    net.logits = emitter.value(output()).data<float>();
    const bool is_input = inputs[0] == Graph::input();
    const Tensor x = is_input ? Tensor() : emitter.value(inputs[0]);
    std::vector<Conv2dProblem> problems;
    for (const Conv2dOp* one : layers_) problems.push_back(one->problem());
    emitter.call([run = small_net_kernel.get(emitter.device()), net, x, is_input, problems,
                  state = emitter.state()]() mutable {
      net.images = static_cast<const float*>(is_input ? state->images : x.raw_data());
      for (const Conv2dProblem& problem : problems) kernel_ran(kSmallNet, "forward", problem);
      run(net);
    });
  }
  void backward(Emitter&) override {}

 private:
  const Conv2dOp& at(int i) const { return *layers_[static_cast<std::size_t>(i)]; }

  SmallNet net_;
  std::vector<std::unique_ptr<Operation>> ops_;
  std::vector<const Conv2dOp*> layers_;
};

// The operations of a graph that make up a small network. The first one is the quantiser of the
// images.
struct Found {
  SmallNet net;
  std::vector<Operation*> ops;
};

std::optional<Found> find_from(const Graph& graph, Operation& first) {
  const auto* const quantise = as<QuantizeOp>(&first);
  if (quantise == nullptr || graph.layout(first.inputs[0]) != ActivationLayout::nchw) return {};
  Found found;
  found.net.batch = graph.shape(first.output())[0];
  found.net.image_low = graph.desc(first.output()).quantization->low;
  found.net.image_high = graph.desc(first.output()).quantization->high;
  found.ops.push_back(&first);
  for (ValueId value = first.output();;) {
    Operation* const op = graph.only_reader(value);
    if (op == nullptr || op->inputs[0] != value) return {};
    found.ops.push_back(op);
    value = op->output();
    if (const auto* const pool = as<MaxPool>(op)) {
      if (found.net.stages == 0 || !pool->window().halves()) return {};
      SmallNetStage& before = found.net.stage[found.net.stages - 1];
      if (before.is_linear || before.pools) return {};
      before.pools = true;
      continue;
    }
    const auto* const layer = as<Conv2dOp>(op);
    if (layer == nullptr || !layer->on_codes() || found.net.stages == kMaxSmallNetStages) return {};
    SmallNetStage& stage = found.net.stage[found.net.stages];
    if (!describe_stage(graph, *layer, stage)) return {};
    ++found.net.stages;
    if (!stage.y_is_codes) break;
  }
  if (*small_net::refusal(found.net) != '\0') return {};
  return found;
}

void join_small_networks(Graph& graph) {
  if (graph.training()) return;
  for (const auto& op : graph.ops()) {
    const auto found = find_from(graph, *op);
    if (!found) continue;
    auto joined = std::make_unique<SmallNetOp>(found->net);
    joined->layer = found->ops[1]->layer;
    SmallNetOp& net = *joined;
    return net.keep(graph.replace(found->ops, std::move(joined)));
  }
}

const bool registered = register_pass(kSmallNet, join_small_networks);

}  // namespace
}  // namespace convscope
