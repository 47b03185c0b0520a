// SPDX-License-Identifier: Apache-2.0
// few_channel_chain.cpp: replaces one or two stages by one operation of a compiled step on a
// GPU. A stage is a convolution of few channels with its activation and 2x2 pooling. For the two
// stages of a LeNet, this operation launches one kernel in the forward pass and two in the backward
// pass (few_channel_conv.h). Two stages become one operation only if the gradient of the first
// stage's input is not needed. With half-precision operands, the tensors are stored as f32
// [N,C,H,W], and the kernels round the operands.
#include <algorithm>

#include "framework/distributed/process_group.h"
#include "layers/conv2d/fusions/conv2d_chain.h"
#include "layers/conv2d/shared/few_channel_conv.h"
#include "layers/dispatch/kernel_runs.h"
#include "layers/plan/pipeline.h"
#include "layers/plan/step_partners.h"

namespace convscope {
namespace {

struct Link {
  FewChannelStage stage;
  ValueId weight, bias;  // bias: kNoValue when there is none
  std::string layer;
};

// Reports that the chain runs. The kernels cannot report the chain, because direct_sample calls
// them, too.
void say_what_runs(const FewChannelForward& a) {
  for (int i = 0; i < a.stages; ++i) {
    kernel_ran(kFewChannelChain, "forward",
               few_channel_problem(a.stage[i], a.batch, a.operand_type));
  }
}

void say_what_runs(const FewChannelBackward& a) {
  for (int i = 0; i < a.stages; ++i) {
    const Conv2dProblem problem = few_channel_problem(a.stage[i], a.batch, a.operand_type);
    if (a.dw[i] != nullptr) kernel_ran(kFewChannelChain, "backward_weight", problem);
    if (i > 0 || a.dx != nullptr) kernel_ran(kFewChannelChain, "backward_data", problem);
  }
}

class FewChannelChainOp final : public Operation, public StepPartner {
 public:
  FewChannelChainOp(std::vector<Link> links, std::int64_t batch, DType operand_type)
      : Operation("few_channel_chain"),
        links_(std::move(links)),
        batch_(batch),
        operand_type_(operand_type) {
    waits_first = true;
  }

  std::string text() const override {
    std::string out = links_.size() == 2 ? "in one kernel:" : "";
    for (const Link& link : links_) {
      const FewChannelStage& z = link.stage;
      out += cat(out.empty() ? "" : " ", link.layer, " conv2d direct_sample",
                 z.activation == FewChannelActivation::relu   ? " + relu"
                 : z.activation == FewChannelActivation::tanh ? " + tanh"
                                                              : "",
                 z.pools() ? " + max_pool2d;" : ";");
    }
    return cat(out, is_half(operand_type_) ? cat(" operands in ", name_of(operand_type_), ";") : "",
               " sums in another order");
  }
  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::vector<ChainLayer> layers;
    for (const Link& link : links_) {
      layers.push_back(
          {link.layer, few_channel_problem(link.stage, batch_, operand_type_).nominal_flops()});
    }
    return chain_kernels(graph, kFewChannelChain, layers, graph.wants_gradient(inputs[0]));
  }

  void forward(Emitter& emitter) override {
    FewChannelForward a;
    a.operand_type = operand_type_;
    a.stages = count();
    a.batch = batch_;
    a.only_x_is_new = only_x_is_new(emitter.graph());
    y_.clear();
    passes_.clear();
    for (int i = 0; i < a.stages; ++i) {
      const Link& link = at(i);
      a.stage[i] = link.stage;
      a.w[i] = emitter.value(link.weight).data<float>();
      a.b[i] = link.bias != kNoValue ? emitter.value(link.bias).data<float>() : nullptr;
      const Shape shape{batch_, link.stage.k, link.stage.out_h(), link.stage.out_w()};
      y_.push_back(i + 1 < a.stages ? emitter.slot(shape, DType::f32) : kNoSlot);
      a.y[i] = y(emitter, i).data<float>();
      if (!emitter.graph().training()) continue;
      passes_.push_back(emitter.slot(shape, DType::u8));
      a.passes[i] = emitter.use(passes_.back()).data<std::uint8_t>();
    }
    const bool reads_images = inputs[0] == Graph::input();
    if (reads_images && few_channel_gathers(a.stage[0]) && emitter.graph().has_loss() &&
        emitter.graph().readers(Graph::input()) == 1) {
      emitter.offers().gathers = true;
    }
    for (int i = 0; i < a.stages; ++i) a.keeps_y_rounded[i] = keeps_y_rounded(emitter.graph(), i);
    copies_.clear();
    for (const Link& link : links_) {
      copies_.push_back(emitter.copy_of_weight(link.weight, operand_type_, /*as_floats=*/true));
    }
    const float* const x = input(emitter);
    emitter.call([this, run = few_channel_forward_kernel.get(emitter.device()), a, x,
                  state = emitter.state()]() mutable {
      a.x = x != nullptr ? x : static_cast<const float*>(state->images);
      a.gather = x == nullptr && state->gather != nullptr ? *state->gather : BatchGather{};
      x_is_rounded_ = a.gather.images != nullptr;
      FewChannelForward now = a;
      now.w_is_rounded = take_copies(now.w);
      say_what_runs(now);
      run(now);
    });
  }

  void backward(Emitter& emitter) override {
    FewChannelBackward a;
    a.operand_type = operand_type_;
    // The kernels of the forward pass have ended: the kernel of the loss began after them, and it
    // is the previous kernel. So only dy may still be unfinished when the backward kernel starts.
    a.only_dy_is_new = true;
    a.stages = count();
    a.batch = batch_;
    for (int i = 0; i < a.stages; ++i) {
      const Link& link = at(i);
      a.stage[i] = link.stage;
      a.w[i] = emitter.value(link.weight).data<float>();
      a.y[i] = y(emitter, i).data<float>();
      a.passes[i] = emitter.use(passes_[static_cast<std::size_t>(i)]).data<std::uint8_t>();
      const Emitter::Target dw = emitter.gradient_target(link.weight);
      a.dw[i] = dw.tensor.data<float>();
      a.accumulate[i] = dw.accumulate;
      if (link.bias != kNoValue) {
        a.db[i] = emitter.gradient_target(link.bias).tensor.data<float>();
      }
    }
    a.dy = emitter.gradient(output()).data<float>();
    const std::int64_t floats =
        few_channel_chunks(batch_) * few_channel_piece_floats(a.stage, a.stages);
    // If nothing but the optimiser's update reads the weight gradients, their partial sums are
    // added up later, at the end of the backward pass. adds_pieces is true if they must be added
    // here.
    a.adds_pieces = !exchange;
    const Slot pieces = emitter.slot({floats}, DType::f32);
    a.sums = emitter.use(pieces).data<float>();
    const float* const x = input(emitter);
    const auto emit = [&] {
      const bool y_is_rounded = count() == 1 || keeps_y_rounded(emitter.graph(), 0);
      emitter.call([this, run = few_channel_backward_kernel.get(emitter.device()), a, x,
                    y_is_rounded, state = emitter.state()]() mutable {
        a.x = x != nullptr ? x : static_cast<const float*>(state->images);
        FewChannelBackward now = a;
        now.all_is_rounded = y_is_rounded && x_is_rounded_ && take_copies(now.w);
        say_what_runs(now);
        run(now);
      });
    };
    if (!emitter.graph().wants_gradient(inputs[0])) {
      emit();
    } else {
      emitter.assign_gradient(inputs[0], [&](const Tensor& dx) {
        a.dx = dx.data<float>();
        emit();
      });
    }
    if (a.adds_pieces) return;
    const int parts = few_channel_backward_parts(a.stage, a.stages, a.batch);
    *exchange = {pieces, few_channel_sums(few_channel_plan(a, parts))};
  }
  bool leaves_sums(const Graph& graph) const override {
    return process_group() == nullptr && weights_are_parameters(graph);
  }
  void settle(Graph& graph) override {
    if (keeps_y_rounded(graph, count() - 1)) graph.set_rounded(output());
  }

 private:
  int count() const { return static_cast<int>(links_.size()); }
  // Tells whether y of a stage may be stored rounded. This holds if y is read only as an operand:
  // by the next stage, or by the single following operation if that operation rounds its input to
  // the same type. The backward pass must not need y either. With pooling and without tanh, the
  // slope of the activation is known from the pooling.
  bool keeps_y_rounded(const Graph& graph, int i) const {
    const FewChannelStage& z = at(i).stage;
    if (!is_half(operand_type_) || !z.pools() || z.activation == FewChannelActivation::tanh)
      return false;
    if (i + 1 < count()) return true;
    if (graph.readers(output()) != 1) return false;
    for (const auto& op : graph.ops()) {
      for (std::size_t j = 0; j < op->inputs.size(); ++j) {
        if (graph.owner(op->inputs[j]) == graph.owner(output())) {
          return j == 0 && op->uses.rounds_image == operand_type_;
        }
      }
    }
    return false;
  }
  // Reads the rounded copies of the weights if all of these copies exist.
  bool take_copies(const float* (&w)[2]) const {
    const auto is_there = [](const Emitter::CopyOfWeight& copy) { return copy.now() != nullptr; };
    if (!std::ranges::all_of(copies_, is_there)) return false;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      w[i] = static_cast<const float*>(copies_[i].now());
    }
    return true;
  }
  // Tells whether x is the only input that may still be written when the kernel starts. This holds
  // if no operation of the step computes the weights, because kernels that change weights have
  // ended before the step's images and labels are copied.
  bool only_x_is_new(const Graph& graph) const {
    return graph.has_loss() && weights_are_parameters(graph);
  }
  bool weights_are_parameters(const Graph& graph) const {
    return std::ranges::all_of(links_, [&](const Link& link) {
      return graph.parameter_of(link.weight) != nullptr &&
             (link.bias == kNoValue || graph.parameter_of(link.bias) != nullptr);
    });
  }
  const Link& at(int i) const { return links_[static_cast<std::size_t>(i)]; }
  Tensor y(Emitter& emitter, int i) {
    return i + 1 < count() ? emitter.use(y_[static_cast<std::size_t>(i)]) : emitter.value(output());
  }
  // Returns the input, or null for the step's input images, whose address may change.
  const float* input(Emitter& emitter) {
    return inputs[0] == Graph::input() ? nullptr : emitter.value(inputs[0]).data<float>();
  }

  std::vector<Link> links_;
  std::int64_t batch_;
  DType operand_type_;
  std::vector<Slot> y_, passes_;
  std::vector<Emitter::CopyOfWeight> copies_;
  bool x_is_rounded_ = false;  // in this step: images were rounded when gathered
};

bool is_small(const Conv2dProblem& z) {
  constexpr std::int64_t kMax = 1024;
  return z.c <= kMax && z.k <= kMax && z.h <= kMax && z.w <= kMax && z.pad_top < z.r &&
         z.pad_left < z.s && z.pad_bottom < z.r && z.pad_right < z.s;
}

bool accepts_link(const Graph&, const ChainLink& link) {
  const Conv2dProblem& z = link.conv->problem();
  const bool takes = z.dtype == DType::f32 || is_half(z.dtype);
  return takes && z.groups == 1 && z.stride_h == 1 && z.stride_w == 1 && z.dilation_h == 1 &&
         z.dilation_w == 1 && z.r == z.s && is_small(z);
}

FewChannelStage stage_of(const ChainLink& link) {
  const Conv2dProblem& z = link.conv->problem();
  const auto small = [](std::int64_t size) { return static_cast<int>(size); };
  return {.c = small(z.c),
          .h = small(z.h),
          .w = small(z.w),
          .k = small(z.k),
          .r = small(z.r),
          .pad_top = small(z.pad_top),
          .pad_left = small(z.pad_left),
          .p = small(z.p()),
          .q = small(z.q()),
          .activation = link.activation == ChainLink::Activation::relu ? FewChannelActivation::relu
                        : link.activation == ChainLink::Activation::tanh
                            ? FewChannelActivation::tanh
                            : FewChannelActivation::none,
          .max_pool = link.pools};
}

bool accepts(const Graph& graph, const std::vector<ChainLink>& links) {
  const bool wants_dx = graph.wants_gradient(links.front().input());
  const FewChannelStage stages[2] = {stage_of(links.front()), stage_of(links.back())};
  return *few_channel_refusal(stages, static_cast<int>(links.size()), wants_dx) == '\0';
}

void form_chains(Graph& graph) {
  const Shape& images = graph.shape(Graph::input());
  if (images.rank() != 4) return;
  const ChainRules rules{.algorithm = nullptr, .takes_tanh = true, .accepts = accepts_link};
  auto& ops = graph.ops();
  for (std::size_t i = 0; i < ops.size();) {
    std::vector<ChainLink> links = chain_from(graph, ops[i].get(), rules, 2);
    // Without pooling, the chain writes as much to memory as single layers and is not faster.
    const bool pools = !links.empty() && links.front().pools;
    if (pools && links.size() == 2 && !accepts(graph, links)) links.pop_back();
    if (!pools || !accepts(graph, links)) {
      ++i;
      continue;
    }
    std::vector<Link> chain;
    for (const ChainLink& link : links) {
      chain.push_back({stage_of(link), link.conv->weight(), link.conv->bias(), link.conv->layer});
    }
    const DType operand_type = links.front().conv->problem().dtype;
    replace_chain(graph, links,
                  std::make_unique<FewChannelChainOp>(std::move(chain), images[0], operand_type));
  }
}

const bool registered = register_pass("few_channel_chain", form_chains);

}  // namespace
}  // namespace convscope
