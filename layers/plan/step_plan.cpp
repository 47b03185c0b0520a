// SPDX-License-Identifier: Apache-2.0
#include "layers/plan/step_plan.h"

#include <algorithm>
#include <chrono>

#include "framework/cpu_isa.h"
#include "framework/ops/elementwise.h"
#include "framework/ops/reduce.h"
#include "framework/ops/softmax_cross_entropy.h"
#include "framework/parallel.h"

namespace convscope {
namespace {

constexpr const char* kName = "plan";

// One fork and one join for all of them.
void run(const std::vector<PlanCall>& calls) {
  parallel_region([&] {
    for (const PlanCall& call : calls) call.run(call.arguments);
  });
}

// The first sentence that speaks against a plan, or "".
std::string obstacle(Module& model, const Shape& input) {
  if (input.rank() < 1 || input[0] < 1) return "an empty batch";
  for (const NamedParameter& parameter : model.parameters()) {
    const Variable& p = parameter.variable;
    if (p.dtype() != DType::f32) return cat(parameter.name, " is no f32 tensor");
    if (p.device().type != DeviceType::cpu) return cat(parameter.name, " is not on the cpu");
  }
  return "";
}

}  // namespace

std::unique_ptr<StepPlan> StepPlan::make(Module& model, const Shape& input, PlanMode mode,
                                         std::string* why_not, Ref<Storage> arena) {
  const auto refused = [&](const std::string& why) {
    if (why_not != nullptr) *why_not = why;
    return nullptr;
  };
  const std::string no = obstacle(model, input);
  if (!no.empty()) return refused(no);
  std::unique_ptr<StepPlan> plan(new StepPlan(input, mode));
  PlanGraph& graph = plan->graph_;
  plan->logits_ = model.describe(graph, PlanGraph::input());
  if (!graph.refusal().empty()) return refused(graph.refusal());
  graph.set_result(plan->logits_);
  if (graph.training() && graph.shape(plan->logits_).rank() != 2) {
    return refused(cat("the result is ", graph.shape(plan->logits_), ", no logits [N,classes]"));
  }
  graph.fuse();
  for (const PlanRewrite& rewrite : plan_rewrites()) rewrite.run(graph);

  PlanBuilder& builder = plan->builder_;
  builder.start_pass(/*dry=*/true, make_ref<Storage>(Device{}, std::size_t{0}));
  plan->emit();
  builder.finish_dry_pass();
  if (!arena || arena->bytes < builder.arena_bytes_) {
    arena = make_ref<Storage>(Device{}, builder.arena_bytes_);
  }
  builder.start_pass(/*dry=*/false, std::move(arena));
  plan->emit();
  plan->remember(model);
  return plan;
}

void StepPlan::emit() {
  const auto& ops = graph_.ops();
  if (graph_.training()) labels_ = builder_.labels();  // they are there before the first call
  builder_.op_ = 0;
  for (const auto& op : ops) {
    op->forward(builder_);
    ++builder_.op_;
  }
  result_ = builder_.value(logits_);
  if (!graph_.training()) {
    builder_.call([] {});  // the result outlives the last call
    builder_.forward_calls_ = builder_.call_index_;
    return;
  }
  // The loss: softmax, the mean of -log p[label], and the most likely class.
  const Shape& shape = graph_.shape(logits_);
  const double factor = 1.0 / static_cast<double>(shape[0]);
  const Slot probabilities = builder_.slot(shape, DType::f32);
  const Slot losses = builder_.slot({shape[0]}, DType::f32);
  const Slot sum = builder_.slot({1}, DType::f32);
  const Slot loss = builder_.slot({1}, DType::f32);
  const Slot predicted = builder_.slot({shape[0]}, DType::i32);
  const Device cpu{};
  builder_.call([x = result_, labels = builder_.labels(), y = builder_.use(probabilities),
                 each = builder_.use(losses), sum = builder_.use(sum), loss = builder_.use(loss),
                 predicted = builder_.use(predicted), factor, cpu] {
    softmax_kernel.get(cpu)(x, labels, y, each);
    sum_kernel.get(cpu)(each, 1u, sum);
    scale_kernel.get(cpu)(factor, sum, loss);
    argmax_kernel.get(cpu)(x, predicted);
  });
  builder_.forward_calls_ = builder_.call_index_;
  builder_.in_backward_ = true;
  // Read after the forward: alive until the first call of the backward is over.
  loss_ = builder_.use(loss);
  predicted_ = builder_.use(predicted);
  const PlanBuilder::Target dx = builder_.gradient_target(logits_);
  builder_.call([y = builder_.use(probabilities), labels = builder_.labels(), dx = dx.tensor,
                 factor, cpu] { softmax_gradient_kernel.get(cpu)(y, labels, factor, dx); });
  // What no loss depends on has no gradient; nor has what no parameter stands before.
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    --builder_.op_;
    if (builder_.wants_gradient((*op)->output)) (*op)->backward(builder_);
  }
}

void StepPlan::remember(Module& model) {
  threads_ = num_threads();
  isa_ = static_cast<int>(current_isa());
  for (const NamedParameter& parameter : model.parameters()) {
    const Variable& p = parameter.variable;
    const Tensor& gradient = p.state()->grad;
    held_.push_back({p, p.value().raw_data(), gradient.defined() ? gradient.raw_data() : nullptr});
  }
  memory_.arena_bytes = static_cast<std::int64_t>(builder_.arena_->bytes);
  std::vector<ArenaRequest> requests;
  for (const PlanBuilder::SlotState& slot : builder_.slots_) {
    const auto bytes = static_cast<std::int64_t>(slot.bytes);
    requests.push_back({.bytes = slot.bytes, .first = slot.first, .last = slot.last});
    if (slot.is_workspace) memory_.workspace_bytes = std::max(memory_.workspace_bytes, bytes);
    const bool kept = slot.first < builder_.forward_calls_ && slot.last >= builder_.forward_calls_;
    if (kept && graph_.training()) memory_.kept_bytes += bytes;
  }
  memory_.lower_bound_bytes = static_cast<std::int64_t>(arena_lower_bound(requests));
}

bool StepPlan::is_current() const {
  if (threads_ != num_threads() || isa_ != static_cast<int>(current_isa())) return false;
  return std::all_of(held_.begin(), held_.end(), [](const Held& held) {
    const Variable::State& state = *held.parameter.state();
    return state.value.raw_data() == held.data &&
           (state.grad.defined() ? state.grad.raw_data() : nullptr) == held.gradient;
  });
}

void StepPlan::prepare() { run(builder_.prologue_calls_); }

void StepPlan::load(const Tensor& x, const Tensor& labels) {
  CONVSCOPE_CHECK(x.shape() == input() && x.dtype() == DType::f32, kName, "expected images f32",
                  input(), " because the plan was made for them, got ", x.str());
  builder_.images_now_ = x.raw_data();
  if (!graph_.training()) return;
  CONVSCOPE_CHECK(labels.dtype() == DType::i32 && labels.shape() == labels_.shape(), kName,
                  "expected labels i32", labels_.shape(), ", got ", labels.str());
  const std::int64_t classes = graph_.shape(logits_)[1];
  const std::int32_t* const from = labels.data<std::int32_t>();
  std::int32_t* const to = labels_.data<std::int32_t>();
  for (std::int64_t n = 0; n < labels.numel(); ++n) {
    CONVSCOPE_CHECK(from[n] >= 0 && from[n] < classes, kName, "expected labels in [0,", classes,
                    "), got ", from[n], " at index ", n);
    to[n] = from[n];
  }
}

double StepPlan::forward(const Tensor& x, const Tensor& labels) {
  load(x, labels);
  run(builder_.forward_);
  return *loss_.data<float>();
}

Tensor StepPlan::infer(const Tensor& x) {
  load(x, {});
  run(builder_.forward_);
  return result_;
}

void StepPlan::backward() {
  run(builder_.backward_);
  for (const Variable& parameter : builder_.parameters_) parameter.state()->grad_is_zero = false;
}

std::int64_t StepPlan::correct() const {
  std::int64_t count = 0;
  for (std::int64_t n = 0; n < labels_.numel(); ++n) {
    count += predicted_.data<std::int32_t>()[n] == labels_.data<std::int32_t>()[n] ? 1 : 0;
  }
  return count;
}

std::vector<StepPlan::OpTime> StepPlan::time_ops(const Tensor& x, const Tensor& labels) {
  load(x, labels);
  std::vector<OpTime> out;
  for (const auto& op : graph_.ops()) out.push_back({.layer = op->layer, .text = op->text()});
  if (graph_.training()) out.push_back({.layer = "", .text = "softmax_cross_entropy"});
  const auto time = [&](const std::vector<PlanCall>& calls, double OpTime::*into) {
    for (const PlanCall& call : calls) {
      const auto start = std::chrono::steady_clock::now();
      call.run(call.arguments);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      if (static_cast<std::size_t>(call.op) < out.size()) {
        out[static_cast<std::size_t>(call.op)].*into += took.count();
      }
    }
  };
  time(builder_.forward_, &OpTime::forward_s);
  time(builder_.backward_, &OpTime::backward_s);
  return out;
}

std::vector<StepPlan::Line> StepPlan::lines() const {
  std::vector<Line> out;
  for (const auto& op : graph_.ops()) {
    out.push_back({op->layer, op->text(), graph_.shape(op->output)});
  }
  return out;
}

std::string StepPlan::text() const {
  std::string out;
  for (const Line& line : lines()) out += cat(line.layer, "  ", line.text, "  ", line.shape, "\n");
  return out;
}

const char* StepPlan::algorithm_of(const std::string& layer) const {
  for (const auto& op : graph_.ops()) {
    if (const char* name = op->algorithm_of(layer)) return name;
  }
  return nullptr;
}

int StepPlan::conversions() const {
  int count = 0;
  for (const auto& op : graph_.ops()) count += op->conversions();
  return count;
}

}  // namespace convscope
