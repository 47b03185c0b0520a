// SPDX-License-Identifier: Apache-2.0
// pooled_chain_plan.cpp: convolutions of few channels with their curves and 2x2 poolings as one
// operation of a planned step on a GPU: one kernel forward, two backward for both convolutions of a
// LeNet (pooled_chain.h). Two stages are joined where nobody asks for the gradient of the input.
#include <algorithm>

#include "layers/conv2d/conv2d_op.h"
#include "layers/conv2d/few_channel_chains/cuda/pooled_chain.h"
#include "layers/plan/activation_op.h"
#include "layers/plan/max_pool_op.h"

namespace convscope {
namespace {

struct Link {
  PooledStage stage;
  Variable weight, bias;
  std::string layer;
  std::vector<PlanOp*> ops;  // that it replaces
};

class PooledChainOp final : public PlanOp {
 public:
  PooledChainOp(std::vector<Link> links, std::int64_t batch)
      : links_(std::move(links)), batch_(batch) {}

  std::string text() const override {
    std::string out = links_.size() == 2 ? "in one kernel:" : "";
    for (const Link& link : links_) {
      const PooledStage& z = link.stage;
      out += cat(out.empty() ? "" : " ", link.layer, " conv2d direct",
                 z.curve == PooledCurve::relu   ? " + relu"
                 : z.curve == PooledCurve::tanh ? " + tanh"
                                                : "",
                 z.pools() ? " + max_pool2d;" : ";");
    }
    return out + " sums in another order";
  }
  const char* algorithm_of(const std::string& name) const override {
    return std::any_of(links_.begin(), links_.end(),
                       [&](const Link& link) { return link.layer == name; })
               ? "direct"
               : nullptr;
  }

  void forward(PlanBuilder& builder) override {
    PooledForward a;
    a.stages = count();
    a.batch = batch_;
    y_.clear();
    passes_.clear();
    for (int i = 0; i < a.stages; ++i) {
      const Link& link = at(i);
      a.stage[i] = link.stage;
      a.w[i] = link.weight.value().data<float>();
      a.b[i] = link.bias.defined() ? link.bias.value().data<float>() : nullptr;
      const Shape shape{batch_, link.stage.k, link.stage.out_h(), link.stage.out_w()};
      y_.push_back(i + 1 < a.stages ? builder.slot(shape, DType::f32) : kNoSlot);
      a.y[i] = y(builder, i).data<float>();
      if (!builder.training()) continue;
      passes_.push_back(builder.slot(shape, DType::u8));
      a.passes[i] = builder.use(passes_.back()).data<std::uint8_t>();
    }
    const float* const x = input(builder);
    builder.call([run = pooled_forward_kernel.get(builder.device()), a, x,
                  images = builder.images()]() mutable {
      a.x = x != nullptr ? x : static_cast<const float*>(*images);
      run(a);
    });
  }

  void backward(PlanBuilder& builder) override {
    PooledBackward a;
    a.stages = count();
    a.batch = batch_;
    for (int i = 0; i < a.stages; ++i) {
      const Link& link = at(i);
      a.stage[i] = link.stage;
      a.w[i] = link.weight.value().data<float>();
      a.y[i] = y(builder, i).data<float>();
      a.passes[i] = builder.use(passes_[static_cast<std::size_t>(i)]).data<std::uint8_t>();
      const PlanBuilder::Target dw = builder.parameter_gradient(link.weight);
      a.dw[i] = dw.tensor.data<float>();
      a.accumulate[i] = dw.accumulate;
      if (link.bias.defined()) {
        a.db[i] = builder.parameter_gradient(link.bias).tensor.data<float>();
      }
    }
    a.dy = builder.gradient(output).data<float>();
    const std::int64_t floats = pooled_chunks(batch_) * pooled_piece_floats(a.stage, a.stages);
    a.sums =
        static_cast<float*>(builder.workspace(static_cast<std::size_t>(floats) * sizeof(float)));
    const float* const x = input(builder);
    const auto emit = [&] {
      builder.call([run = pooled_backward_kernel.get(builder.device()), a, x,
                    images = builder.images()]() mutable {
        a.x = x != nullptr ? x : static_cast<const float*>(*images);
        run(a);
      });
    };
    if (!builder.wants_gradient(inputs[0])) return emit();
    builder.assign_gradient(inputs[0], [&](const Tensor& dx) {
      a.dx = dx.data<float>();
      emit();
    });
  }

 private:
  int count() const { return static_cast<int>(links_.size()); }
  const Link& at(int i) const { return links_[static_cast<std::size_t>(i)]; }
  Tensor y(PlanBuilder& builder, int i) {
    return i + 1 < count() ? builder.use(y_[static_cast<std::size_t>(i)]) : builder.value(output);
  }
  // Null: the images, wherever they lie in this step.
  const float* input(PlanBuilder& builder) {
    return inputs[0] == PlanGraph::input() ? nullptr : builder.value(inputs[0]).data<float>();
  }

  std::vector<Link> links_;
  std::int64_t batch_;
  std::vector<Slot> y_, passes_;
};

bool is_open(const Conv2dPolicy& policy) {
  const auto open = [](const std::string& word) { return word == "auto" || word == "direct"; };
  return open(policy.forward) && open(policy.backward_data) && open(policy.backward_weight);
}

bool is_2x2(const Pool2dWindow& w) {
  return w.kernel_h == 2 && w.kernel_w == 2 && w.stride_h == 2 && w.stride_w == 2 && w.pad_h == 0 &&
         w.pad_w == 0 && !w.ceil_mode;
}

// The only operation that reads what `op` gives, or null.
PlanOp* only_reader(const PlanGraph& graph, const PlanOp& op) {
  if (graph.readers(op.output) != 1) return nullptr;
  for (const auto& other : graph.ops()) {
    if (std::count(other->inputs.begin(), other->inputs.end(), op.output) > 0) return other.get();
  }
  return nullptr;
}

bool trains(const Variable& parameter) { return !parameter.defined() || parameter.requires_grad(); }

bool is_small(const Conv2dProblem& z) {
  constexpr std::int64_t kMost = 1024;
  return z.c <= kMost && z.k <= kMost && z.h <= kMost && z.w <= kMost && z.pad_top < z.r &&
         z.pad_left < z.s && z.pad_bottom < z.r && z.pad_right < z.s;
}

// The convolution `op`, the curve behind it and the pooling behind that; no `ops`: not one of ours.
Link link_at(const PlanGraph& graph, PlanOp* op) {
  Link link;
  const auto* const conv = dynamic_cast<Conv2dOp*>(op);
  if (conv == nullptr || !conv->is_plain() || !is_open(conv->policy())) return link;
  const Conv2dProblem& z = conv->problem();
  if (z.dtype != DType::f32 || z.groups != 1 || z.stride_h != 1 || z.stride_w != 1 ||
      z.dilation_h != 1 || z.dilation_w != 1 || z.r != z.s || !is_small(z)) {
    return link;
  }
  if (graph.training() && !(trains(conv->weight()) && trains(conv->bias()))) return link;
  const auto small = [](std::int64_t size) { return static_cast<int>(size); };
  link.stage = {.c = small(z.c),
                .h = small(z.h),
                .w = small(z.w),
                .k = small(z.k),
                .r = small(z.r),
                .pad_top = small(z.pad_top),
                .pad_left = small(z.pad_left),
                .p = small(z.p()),
                .q = small(z.q()),
                .curve = conv->relu() ? PooledCurve::relu : PooledCurve::none,
                .pool = PooledBy::nothing};
  link.weight = conv->weight();
  link.bias = conv->bias();
  link.layer = conv->layer;
  link.ops = {op};
  PlanOp* next = only_reader(graph, *op);
  const auto* const curve = dynamic_cast<const ActivationOp*>(next);
  if (curve != nullptr && !conv->relu() && curve->curve() == ActivationOp::Curve::tanh) {
    link.stage.curve = PooledCurve::tanh;
    link.ops.push_back(next);
    next = only_reader(graph, *next);
  }
  const auto* const pool = dynamic_cast<const MaxPoolOp*>(next);
  if (pool != nullptr && is_2x2(pool->window())) {
    link.stage.pool = PooledBy::maximum;
    link.ops.push_back(next);
  }
  return link;
}

bool accepts(const PlanGraph& graph, const std::vector<Link>& links) {
  const bool wants_dx = graph.wants_gradient(links.front().ops.front()->inputs[0]);
  const PooledStage stages[2] = {links.front().stage, links.back().stage};
  return *pooled_refusal(stages, static_cast<int>(links.size()), wants_dx) == '\0';
}

void form_chains(PlanGraph& graph) {
  const Shape& images = graph.shape(PlanGraph::input());
  if (images.rank() != 4) return;
  auto& ops = graph.ops();
  for (std::size_t i = 0; i < ops.size(); ++i) {
    Link first = link_at(graph, ops[i].get());
    // Without a pooling there is no big value to keep out of memory: the card is as good.
    if (first.ops.empty() || !first.stage.pools()) continue;
    std::vector<Link> links{first};
    Link second = link_at(graph, only_reader(graph, *first.ops.back()));
    if (!second.ops.empty()) {
      links.push_back(second);
      if (!accepts(graph, links)) links.pop_back();
    }
    if (!accepts(graph, links)) continue;
    std::vector<PlanOp*> replaced;
    for (const Link& link : links) {
      replaced.insert(replaced.end(), link.ops.begin(), link.ops.end());
    }
    auto joined = std::make_unique<PooledChainOp>(links, images[0]);
    joined->layer = replaced.front()->layer;
    joined->inputs = replaced.front()->inputs;
    joined->output = replaced.back()->output;
    // Nothing else reads what lies between, so the chain may run where its first operation stood.
    std::erase_if(ops, [&](const auto& op) {
      return op.get() != replaced.front() &&
             std::find(replaced.begin(), replaced.end(), op.get()) != replaced.end();
    });
    ops[i] = std::move(joined);
  }
}

const bool registered =
    register_plan_rewrite({.name = "pooled_chain", .device = DeviceType::cuda, .run = form_chains});

}  // namespace
}  // namespace convscope
