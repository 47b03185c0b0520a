// SPDX-License-Identifier: Apache-2.0
// linear_tail_plan.cpp: the last linear layers and the loss as one operation of a compiled step on
// a GPU (linear_tail.h). One launch processes each image separately, one launch computes the
// gradients of all weights. The forward pass already writes the gradients of the values, as in a
// last layer that is fused with the loss.
#include <algorithm>

#include "framework/distributed/process_group.h"
#include "layers/linear/linear_cross_entropy.h"
#include "layers/linear/linear_tail.h"
#include "layers/losses/cross_entropy.h"
#include "layers/plan/pipeline.h"
#include "layers/plan/step_partners.h"

namespace convscope {

constinit KernelSlot<void(const LinearTailArgs&)> linear_tail_rows_kernel{"linear_tail"};
constinit KernelSlot<void(const LinearTailArgs&)> linear_tail_weights_kernel{"linear_tail"};

std::string linear_tail_refusal(std::int64_t n, const std::vector<std::int64_t>& sizes) {
  constexpr std::int64_t kMaxWeights = std::int64_t{1} << 17, kMaxImages = 2048;
  if (n < 1 || n > kMaxImages) return "expects 1 to 2048 images";
  const std::size_t layers = sizes.size() - 1;
  if (layers < 2 || layers > kMaxTailLayers) return "expects two to four layers";
  if (sizes.back() < 1 || sizes.back() > 32) return "expects at most 32 classes";
  std::int64_t weights = 0, values = 0;
  for (std::size_t k = 0; k < layers; ++k) {
    if (sizes[k] < 4 || sizes[k] % 4 != 0 || sizes[k] > (k == 0 ? 2048 : 1024)) {
      return "expects layers whose inputs are a multiple of 4, at most 2048 of the first";
    }
    weights += sizes[k] * sizes[k + 1];
    values += k == 0 ? sizes[0] + 3 * sizes[1] : 3 * sizes[k + 1];
  }
  if (weights > kMaxWeights) return "expects at most 131072 weights, which each block reads";
  // Eight images take 64 KiB: x, and the values of each layer with their gradients and
  // half-precision copies. Partial sums take 64 KiB more, and weights 96 KiB.
  return values > 2048 ? "expects values that fit into the shared memory of a block" : "";
}

namespace {

struct Link {
  LinearParts parts;
  ValueId output;
  std::string layer;
};

class LinearTailOp final : public Operation, public StepPartner {
 public:
  explicit LinearTailOp(std::vector<Link> links)
      : Operation("linear_tail"), links_(std::move(links)) {
    uses.rounds_image = links_.front().parts.operand_type;
  }

  std::string text() const override {
    std::string out = "in one launch:";
    for (const Link& link : links_) {
      out += cat(" ", link.layer, " linear",
                 is_last(link)     ? cat(" + ", kSoftmaxCrossEntropy)
                 : link.parts.relu ? " + relu"
                                   : "",
                 ";");
    }
    const DType operand_type = links_.front().parts.operand_type;
    if (is_half(operand_type)) out += cat(" operands in ", name_of(operand_type), ";");
    return out + " sums in another order";
  }

  std::vector<RanKernel> kernels(const Graph& graph) const override {
    std::string name = "linear_tail:";
    for (const Link& link : links_) name += cat(&link == &links_.front() ? " " : "+", link.layer);
    std::vector<RanKernel> out;
    for (const Link& link : links_) {
      const Shape &x = graph.shape(link.parts.x), &w = graph.shape(link.parts.weight);
      const double flops = 2.0 * static_cast<double>(x[0] * w.numel());
      const auto add = [&](Direction direction) {
        out.push_back(
            {.layer = link.layer, .direction = direction, .kernel = name, .flops = flops});
      };
      add(Direction::forward);
      if (!graph.training()) continue;
      if (graph.wants_gradient(link.parts.x)) add(Direction::backward_data);
      add(Direction::backward_weight);
    }
    return out;
  }

  void forward(Emitter& emitter) override {
    const std::int64_t images = emitter.graph().shape(inputs[0])[0];
    h_.clear();
    g_.clear();
    g_half_.clear();
    for (const Link& link : links_) {
      const Shape shape{images, emitter.graph().shape(link.parts.weight)[0]};
      h_.push_back(is_last(link) ? kNoSlot : emitter.slot(shape, DType::f32));
      g_.push_back(emitter.graph().training() ? emitter.slot(shape, DType::f32) : kNoSlot);
      const bool rounds = emitter.graph().training() && is_half(link.parts.operand_type);
      g_half_.push_back(rounds ? emitter.slot(shape, DType::f32) : kNoSlot);
    }
    copies_.clear();
    for (const Link& link : links_) {
      copies_.push_back(
          emitter.copy_of_weight(link.parts.weight, link.parts.operand_type, /*as_floats=*/false));
    }
    const auto emit = [&](const Tensor& dx) {
      LinearTailArgs a = arguments(emitter);
      a.dx = dx;
      a.weights_are_there = weights_are_there(emitter.graph());
      a.labels = emitter.value(inputs.back());
      a.loss = emitter.value(outputs[0]);
      a.correct = emitter.value(outputs[1]);
      emitter.call([this, run = linear_tail_rows_kernel.get(emitter.device()), a,
                    state = emitter.state()]() mutable {
        a.loss_scale = state->loss_scale;
        for (int k = 0; k < a.layers; ++k) {
          a.layer[k].w_half = copies_[static_cast<std::size_t>(k)].now();
        }
        run(a);
      });
    };
    const bool wants_dx = emitter.graph().training() && emitter.graph().wants_gradient(inputs[0]);
    wants_dx ? emitter.assign_gradient(inputs[0], emit) : emit(Tensor());
  }

  // Earlier operations need only dx to continue. If only the update waits for the gradients of the
  // weights, these are computed last.
  void backward(Emitter& emitter) override {
    if (exchange) *exchange = {};
    if (!only_update_waits(emitter.graph())) return emit_weight_gradients(emitter, false);
    emitter.at_the_end(
        [this, &emitter] { emit_weight_gradients(emitter, rows_ended(emitter.graph())); });
  }
  bool adds_sums(const Graph& graph) const override { return only_update_waits(graph); }

 private:
  // Tells whether only the update reads the gradients: all weights are parameters without mask or
  // quantiser, and no other process takes part.
  bool only_update_waits(const Graph& graph) const {
    return process_group() == nullptr && std::ranges::all_of(links_, [&](const Link& link) {
             return graph.parameter_of(link.parts.weight) != nullptr;
           });
  }

  // Tells whether the first launch has ended when the last one of the step begins. A kernel between
  // the two launches does not guarantee that, because each kernel may begin while earlier ones run.
  // Only a kernel that waits first guarantees it.
  bool rows_ended(const Graph& graph) const {
    return std::ranges::any_of(graph.ops(), [&](const auto& op) {
      return op->waits_first && graph.wants_gradient(op->output());
    });
  }

  // Tells whether the kernel that changed the weights has ended before this operation begins. This
  // holds if the weights are parameters, and if an earlier operation of the step reads weights.
  bool weights_are_there(const Graph& graph) const {
    const auto is_parameter = [&](ValueId value) { return graph.parameter_of(value) != nullptr; };
    if (!std::all_of(inputs.begin() + 1, inputs.end() - 1, is_parameter)) return false;
    for (const auto& op : graph.ops()) {
      if (op.get() == this) break;
      const std::vector<ValueId>& from = op->inputs;
      if (from.size() > 1 && !is_parameter(from[0]) && is_parameter(from[1])) return true;
    }
    return false;
  }

  // `rows_ended` says that the first launch has ended when the second launch begins.
  void emit_weight_gradients(Emitter& emitter, bool rows_ended) {
    LinearTailArgs a = arguments(emitter);
    for (std::size_t k = 0; k < links_.size(); ++k) {
      const LinearParts& parts = links_[k].parts;
      const Emitter::Target dw = emitter.gradient_target(parts.weight);
      a.layer[k].dw = dw.tensor;
      a.layer[k].accumulate_dw = dw.accumulate;
      if (parts.bias == kNoValue) continue;
      const Emitter::Target db = emitter.gradient_target(parts.bias);
      a.layer[k].db = db.tensor;
      a.layer[k].accumulate_db = db.accumulate;
    }
    a.rows_ended = rows_ended;
    if (exchange && exchange->pieces != kNoSlot) {
      a.sums = exchange->sums;
      a.sums.pieces = emitter.use(exchange->pieces).data<float>();
    }
    if (only_update_waits(emitter.graph())) {
      emitter.offers().updates = gradients_alone(emitter.graph(), a);
    }
    emitter.call([run = linear_tail_weights_kernel.get(emitter.device()), a,
                  state = emitter.state()]() mutable {
      a.update = state->update;
      run(a);
    });
  }
  // Returns how many parameters get their whole gradient from this call. Returns 0 if another
  // operation reads one of these parameters, because that operation has added to the parameter's
  // gradient or may still read the parameter.
  std::size_t gradients_alone(const Graph& graph, const LinearTailArgs& a) const {
    std::size_t count = 0;
    for (const Link& link : links_) {
      for (const ValueId value : {link.parts.weight, link.parts.bias}) {
        if (value == kNoValue) continue;
        if (graph.parameter_of(value) == nullptr || graph.readers(value) != 1) return 0;
        ++count;
      }
    }
    for (const PieceSums::Target& target : a.sums.target) {
      if (target.to == nullptr) continue;
      if (target.accumulate) return 0;
      ++count;
    }
    return count;
  }

  bool is_last(const Link& link) const { return &link == &links_.back(); }

  LinearTailArgs arguments(Emitter& emitter) const {
    LinearTailArgs a;
    a.layers = static_cast<int>(links_.size());
    a.x = emitter.value(inputs[0]);
    a.operand_type = links_.front().parts.operand_type;
    a.x_is_rounded = emitter.graph().is_rounded(inputs[0]);
    for (std::size_t k = 0; k < links_.size(); ++k) {
      const LinearParts& parts = links_[k].parts;
      LinearTailLayer& to = a.layer[k];
      to.w = emitter.value(parts.weight);
      if (parts.bias != kNoValue) to.b = emitter.value(parts.bias);
      if (h_[k] != kNoSlot) to.h = emitter.use(h_[k]);
      if (g_[k] != kNoSlot) to.g = emitter.use(g_[k]);
      if (g_half_[k] != kNoSlot) to.g_half = emitter.use(g_half_[k]);
      to.relu = parts.relu;
    }
    return a;
  }

  std::vector<Link> links_;
  std::vector<Slot> h_, g_, g_half_;
  std::vector<Emitter::CopyOfWeight> copies_;
};

// Tells whether for each layer both gradients, of weight and bias, are computed, or none.
bool can_join(const Graph& graph, const LinearParts& parts) {
  if (parts.sparse) return false;
  const bool has_bias = parts.bias != kNoValue;
  return !graph.training() ||
         (graph.wants_gradient(parts.weight) && (!has_bias || graph.wants_gradient(parts.bias)));
}

void form_tail(Graph& graph) {
  if (!graph.has_loss() || graph.ops().empty()) return;
  std::vector<Link> links;
  std::vector<const Operation*> replaced;
  const Operation* op = nullptr;
  for (const auto& each : graph.ops()) {
    if (as<LinearCrossEntropy>(each.get()) != nullptr) op = each.get();
  }
  while (op != nullptr && links.size() < kMaxTailLayers) {
    const auto* const last = as<LinearCrossEntropy>(op);
    const auto parts = last != nullptr ? last->parts() : linear_parts(*op);
    if (!parts || !can_join(graph, *parts)) break;
    if (last == nullptr && (graph.readers(op->output()) != 1 ||
                            parts->operand_type != links.front().parts.operand_type)) {
      break;
    }
    links.insert(links.begin(), {*parts, op->output(), op->layer});
    replaced.push_back(op);
    op = graph.producer(parts->x);
  }
  const auto refusal = [&] {
    std::vector<std::int64_t> sizes;
    for (const Link& link : links) sizes.push_back(graph.shape(link.parts.weight)[1]);
    sizes.push_back(graph.shape(links.back().parts.weight)[0]);
    return linear_tail_refusal(graph.shape(links.front().parts.x)[0], sizes);
  };
  while (links.size() >= 2 && !refusal().empty()) {  // the first may be too large
    links.erase(links.begin());
    replaced.pop_back();
  }
  if (links.size() < 2) return;

  const Operation* const last = replaced.front();
  std::vector<ValueId> inputs{links.front().parts.x};
  std::vector<std::string> layers;
  for (const Link& link : links) {
    inputs.push_back(link.parts.weight);
    if (link.parts.bias != kNoValue) inputs.push_back(link.parts.bias);
    layers.push_back(link.layer);
  }
  inputs.push_back(last->inputs.back());  // the labels
  auto tail = std::make_unique<LinearTailOp>(links);
  tail->layer = links.front().layer;
  tail->all_layers = layers;
  tail->inputs = inputs;
  tail->outputs = last->outputs;
  std::vector<std::unique_ptr<Operation>> rest;
  for (std::unique_ptr<Operation>& each : graph.ops()) {
    if (each.get() == last) {
      rest.push_back(std::move(tail));
    } else if (std::find(replaced.begin(), replaced.end(), each.get()) == replaced.end()) {
      rest.push_back(std::move(each));
    }
  }
  graph.ops() = std::move(rest);
}

const bool registered = register_pass("linear_tail", form_tail);

}  // namespace
}  // namespace convscope
