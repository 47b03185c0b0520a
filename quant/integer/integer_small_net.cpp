// SPDX-License-Identifier: Apache-2.0
// integer_small_net.cpp: runs a whole small network on integers as one operation of a graph on a
// GPU.
//
//   quantise -> conv int8_gemm -> max-pool on codes -> .. -> linear int8_gemm -> logits
//   -> one kernel (layers/conv2d/int8_small_net.h)
//
// Same       codes and logits as the operations that it replaces
// Not here   networks that do not fit into the shared memory of a thread block, whose images have
//            other readers, or whose policy names another algorithm. They stay unchanged
#include <algorithm>

#include "layers/conv2d/conv2d_chain.h"
#include "layers/conv2d/int8_small_net.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/plan/pipeline.h"
#include "quant/integer/code_ops.h"
#include "quant/integer/integer_op.h"

namespace convscope {
namespace {

int small(std::int64_t size) { return static_cast<int>(std::min<std::int64_t>(size, 1 << 20)); }

// Sets the sizes and bounds of a stage in z, but no pointers. Returns false if the layer cannot be
// a stage of the kernel.
bool describe_stage(const IntegerLayer& layer, SmallNetStage& z) {
  const Conv2dProblem& problem = layer.problem;
  if (layer.is_named || layer.residual != kNoValue || problem.groups != 1) return false;
  z.is_linear = layer.kind == "linear";
  z.c = small(problem.c);
  z.h = small(problem.h);
  z.w = small(problem.w);
  z.k = small(problem.k);
  z.relu = layer.relu;
  z.most = layer.most;
  z.x_is_signed = layer.x_format.dtype() == DType::i8;
  z.y_is_codes = layer.y_format.has_value();
  if (layer.y_format) {
    z.low = layer.y_format->low();
    z.high = layer.y_format->high();
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
  SmallNetOp(const SmallNet& net, const CodeFormat& images,
             std::vector<std::unique_ptr<Operation>> layers)
      : Operation(kSmallNet), net_(net), images_(images), ops_(std::move(layers)) {}

  std::string text() const override {
    std::string out = "in one kernel: quantise";
    for (int i = 0; i < net_.stages; ++i) {
      const IntegerLayer& one = at(i).parts();
      out += cat("; ", at(i).layer, " ", one.kind, " ", one.problem.types->text(),
                 one.norm ? " + batch_norm2d" : "", one.relu ? " + relu" : "",
                 net_.stage[i].pools ? " + max_pool2d" : "");
    }
    return out;
  }
  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<std::string> layers;
    for (int i = 0; i < net_.stages; ++i) layers.push_back(at(i).layer);
    std::vector<RanKernel> out = chain_kernels(graph, kSmallNet, layers, false);
    for (RanKernel& one : out) one.layout = ActivationLayout::nchw16c;
    return out;
  }
  std::optional<Format> format(const Graph&, ActivationLayout layout) const override {
    return codes_format(layout, ActivationLayout::nchw);
  }

  void forward(Emitter& emitter) override {
    SmallNet net = net_;
    std::vector<IntegerOp::Scales> scales;
    std::vector<Slot> words;
    Slot image_step = kNoSlot;
    emitter.prologue([&] {
      image_step = emit_steps(emitter, images_);
      for (int i = 0; i < net.stages; ++i) {
        scales.push_back(at(i).emit_scales(emitter));
        const Slot codes = emitter.temporary(emitter.graph().shape(at(i).parts().w), DType::i8);
        at(i).emit_codes(emitter, scales.back(), codes);
        words.push_back(emitter.slot({small_net::weight_words(net.stage[i])}, DType::i32));
        emitter.call([run = small_net_pack_kernel.get(emitter.device()), z = net.stage[i],
                      codes = emitter.use(codes), to = emitter.use(words.back())] {
          run(z, static_cast<const std::int8_t*>(codes.raw_data()),
              static_cast<unsigned*>(to.raw_data()));
        });
      }
    });
    const auto numbers = [&](Slot slot) -> const double* {
      return slot == kNoSlot ? nullptr : emitter.use(slot).data<double>();
    };
    net.image_step = numbers(image_step);
    for (int i = 0; i < net.stages; ++i) {
      SmallNetStage& z = net.stage[i];
      const auto index = static_cast<std::size_t>(i);
      z.s_x = numbers(scales[index].x_step);
      z.s_w = numbers(scales[index].w_steps);
      z.s_y = numbers(scales[index].y_step);
      z.b = numbers(scales[index].b);
      z.words = static_cast<const unsigned*>(emitter.use(words[index]).raw_data());
    }
    net.logits = emitter.value(output()).data<float>();
    const bool is_input = inputs[0] == Graph::input();
    const Tensor x = is_input ? Tensor() : emitter.value(inputs[0]);
    std::vector<Conv2dProblem> problems;
    for (int i = 0; i < net.stages; ++i) problems.push_back(at(i).parts().problem);
    emitter.call([run = small_net_kernel.get(emitter.device()), net, x, is_input, problems,
                  state = emitter.state()]() mutable {
      net.images = static_cast<const float*>(is_input ? state->images : x.raw_data());
      for (const Conv2dProblem& problem : problems) kernel_ran(kSmallNet, "forward", problem);
      run(net);
    });
  }
  void backward(Emitter&) override {}

 private:
  const IntegerOp& at(int i) const {
    return static_cast<const IntegerOp&>(*ops_[static_cast<std::size_t>(i)]);
  }

  SmallNet net_;
  CodeFormat images_;
  std::vector<std::unique_ptr<Operation>> ops_;  // IntegerOps
};

// The operations of a graph that make up a small network. The first one is the quantiser of the
// images.
struct Found {
  SmallNet net;
  std::vector<const Operation*> ops;     // all of them
  std::vector<const Operation*> layers;  // IntegerOps among them
};

std::optional<Found> find_from(const Graph& graph, const Operation& first) {
  const auto* const quantise = as<QuantizeOp>(&first);
  if (quantise == nullptr || graph.layout(first.inputs[0]) != ActivationLayout::nchw) return {};
  Found found;
  found.net.batch = graph.shape(first.output())[0];
  found.net.image_low = quantise->format().low();
  found.net.image_high = quantise->format().high();
  found.ops.push_back(&first);
  for (ValueId value = first.output();;) {
    const Operation* const op = graph.only_reader(value);
    if (op == nullptr || op->inputs[0] != value) return {};
    found.ops.push_back(op);
    value = op->output();
    if (const auto* const pool = as<CodesPoolOp>(op)) {
      if (found.net.stages == 0 || !halves(pool->window())) return {};
      SmallNetStage& before = found.net.stage[found.net.stages - 1];
      if (before.is_linear || before.pools) return {};
      before.pools = true;
      continue;
    }
    const auto* const layer = as<IntegerOp>(op);
    if (layer == nullptr || found.net.stages == kMaxSmallNetStages) return {};
    SmallNetStage& stage = found.net.stage[found.net.stages];
    if (!describe_stage(layer->parts(), stage)) return {};
    ++found.net.stages;
    found.layers.push_back(op);
    if (!stage.y_is_codes) break;
  }
  if (*small_net::refusal(found.net) != '\0') return {};
  return found;
}

void replace(Graph& graph, const Found& found) {
  const Operation* const last = found.ops.back();
  const auto* const quantise = static_cast<const QuantizeOp*>(found.ops.front());
  const CodeFormat images = quantise->format();
  std::vector<ValueId> inputs = found.ops.front()->inputs;
  std::vector<std::string> layers = found.ops.front()->all_layers;
  for (const Operation* op : found.layers) {
    inputs.insert(inputs.end(), op->inputs.begin() + 1, op->inputs.end());
    layers.insert(layers.end(), op->all_layers.begin(), op->all_layers.end());
  }
  const ValueId output = last->output();
  const std::string layer = found.layers.front()->layer;
  std::vector<std::unique_ptr<Operation>> kept, rest;
  for (std::unique_ptr<Operation>& op : graph.ops()) {
    const Operation* const given = op.get();
    if (std::ranges::count(found.layers, given) > 0) {
      kept.push_back(std::move(op));
    } else if (std::ranges::count(found.ops, given) == 0) {
      rest.push_back(std::move(op));
    }
    if (given != last) continue;
    auto net = std::make_unique<SmallNetOp>(found.net, images, std::move(kept));
    net->layer = layer;
    net->all_layers = layers;
    net->inputs = inputs;
    net->outputs = {output};
    rest.push_back(std::move(net));
  }
  graph.ops() = std::move(rest);
}

void join_small_networks(Graph& graph) {
  if (graph.training()) return;
  for (const auto& op : graph.ops()) {
    if (const auto found = find_from(graph, *op)) return replace(graph, *found);
  }
}

const bool registered = register_pass(kSmallNet, join_small_networks);

}  // namespace
}  // namespace convscope
