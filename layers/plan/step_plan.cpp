// SPDX-License-Identifier: Apache-2.0
// step_plan.cpp: a training or inference step, compiled once for inputs of one shape and then
// replayed: two flat lists of kernel calls with ready arguments, on one block of memory.
#include "layers/plan/step_plan.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "framework/parallel.h"
#include "framework/simd/cpu_isa.h"
#include "layers/dispatch/direction.h"
#include "layers/losses/class_rows.h"
#include "layers/plan/pipeline.h"

namespace convscope {
namespace {

constexpr const char* kName = "plan";

// Returns the device of the parameters: the CPU when there are none.
Device device_of(const std::vector<NamedParameter>& parameters) {
  return parameters.empty() ? Device{} : parameters.front().variable.device();
}

// Returns the first reason that prevents a compiled step, or "".
std::string obstacle(const std::vector<NamedParameter>& parameters, const Shape& input) {
  if (input.rank() < 1 || input[0] < 1) return "an empty batch";
  const Device device = device_of(parameters);
  for (const NamedParameter& parameter : parameters) {
    const Variable& p = parameter.variable;
    if (p.dtype() != DType::f32) return cat(parameter.name, " is not an f32 tensor");
    if (!(p.device() == device)) return cat(parameter.name, " is not on ", device.str());
  }
  return "";
}

// Throws NotCompiled if forward() has used a tensor that is neither a parameter nor a buffer. The
// layer may make such a tensor again in each call, but a graph would use the first one in every
// step.
void check_leaves(const Graph& graph, const Module& model) {
  std::set<const void*> known;
  for (const NamedParameter& parameter : model.parameters()) {
    known.insert(parameter.variable.value().raw_data());
  }
  for (const NamedTensor& buffer : model.buffers()) known.insert(buffer.tensor.raw_data());
  for (ValueId value = 0; value < graph.value_count(); ++value) {
    const Variable* const leaf = graph.parameter_of(value);
    if (leaf == nullptr || (leaf->is_leaf() && known.contains(leaf->value().raw_data()))) continue;
    throw NotCompiled(cat("a layer reads ", leaf->str(),
                          ", which is neither a parameter nor a buffer of the network"));
  }
}

// Returns whether the operation runs in prepare(): in inference, values that depend only on the
// parameters are computed once.
bool runs_once(const Graph& graph, const Operation& op) {
  return !graph.training() && graph.is_of_parameters(op.output());
}

// Returns the bytes of all inputs and outputs, each counted once.
double bytes_of(const Graph& graph, const Operation& op) {
  if (graph.is_shared(op)) return 0;
  std::set<ValueId> values(op.inputs.begin(), op.inputs.end());
  values.insert(op.outputs.begin(), op.outputs.end());
  double bytes = 0;
  for (const ValueId value : values) {
    bytes += static_cast<double>(graph.stored_shape(value).numel()) *
             static_cast<double>(size_of(graph.dtype(value)));
  }
  return bytes;
}

}  // namespace

std::unique_ptr<StepPlan> StepPlan::make(Module& model, const Shape& input, PlanMode mode,
                                         std::string* why_not, Ref<Storage> arena, bool to_show,
                                         const Loss& loss) {
  const auto refused = [&](const std::string& why) {
    if (why_not != nullptr) *why_not = why;
    return nullptr;
  };
  const std::vector<NamedParameter> parameters = model.parameters();
  const std::string no = obstacle(parameters, input);
  if (!no.empty()) return refused(no);
  const Device device = device_of(parameters);
  std::unique_ptr<StepPlan> plan(new StepPlan(input, mode, device));
  Graph& graph = plan->graph_;
  try {
    plan->record(model, loss);
  } catch (const NotCompiled& reason) {
    return refused(reason.why);
  }
  if (!to_show && !graph.wait().empty()) return refused(graph.wait());
  graph.remove_unread();
  run_passes(graph);

  Emitter& emitter = plan->emitter_;
  emitter.start_pass(/*dry=*/true, make_ref<Storage>(device, std::size_t{0}));
  plan->emit();
  emitter.finish_dry_pass();
  if (!arena || arena->bytes < emitter.arena_bytes_ || !(arena->device == device)) {
    arena = make_ref<Storage>(device, emitter.arena_bytes_);
  }
  emitter.start_pass(/*dry=*/false, std::move(arena));
  plan->emit();
  plan->remember(model);
  return plan;
}

void StepPlan::record(Module& model, const Loss& loss_of) {
  const Variable logits = model(graph_.variable(Graph::input()));
  logits_ = graph_.value_of(logits);
  check_leaves(graph_, model);
  graph_.set_result(logits_);
  if (!graph_.has_loss()) return;
  const Shape scores = graph_.shape(logits_);
  labels_value_ = graph_.add_value({labels_shape(scores), DType::i32});
  try {
    graph_.set_result(graph_.value_of(loss_of(logits, graph_.variable(labels_value_))));
  } catch (const Error& error) {  // the eager step reports it
    throw NotCompiled(error.what());
  }
  for (const ValueId value : graph_.producer(graph_.result())->outputs) graph_.keep(value);
}

void StepPlan::emit() {
  const auto& ops = graph_.ops();
  if (graph_.has_loss()) labels_ = emitter_.value(labels_value_);  // alive before the first call
  emitter_.op_ = 0;
  for (const auto& op : ops) {
    emitter_.in_prologue_ = runs_once(graph_, *op);
    op->forward(emitter_);
    emitter_.in_prologue_ = false;
    ++emitter_.op_;
  }
  if (graph_.has_loss()) {
    const std::vector<ValueId>& results = graph_.producer(graph_.result())->outputs;
    loss_ = emitter_.value(results[0]);
    if (results.size() > 1) correct_ = emitter_.value(results[1]);
  } else {
    result_ = emitter_.value(graph_.result());
    emitter_.call([] {});  // keeps the result alive after the last call
  }
  emitter_.forward_calls_ = emitter_.call_index_;
  if (!graph_.training()) return;
  emitter_.in_backward_ = true;
  // Runs the backward pass of an operation only if its output has a gradient: the loss depends on
  // the output, and the output depends on a parameter.
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    --emitter_.op_;
    if (graph_.wants_gradient((*op)->output())) (*op)->backward(emitter_);
  }
  emitter_.emit_deferred();
}

void StepPlan::remember(Module& model) {
  threads_ = num_threads();
  isa_ = static_cast<int>(current_isa());
  const auto hold = [&](const Variable& p) {
    const Tensor& gradient = p.state()->grad;
    held_.push_back({p, p.value().raw_data(), gradient.defined() ? gradient.raw_data() : nullptr});
  };
  for (const NamedParameter& parameter : model.parameters()) hold(parameter.variable);
  for (ValueId value = 0; value < graph_.value_count(); ++value) {  // and steps that do not learn
    const Variable* const parameter = graph_.parameter_of(value);
    if (parameter != nullptr && !parameter->requires_grad()) hold(*parameter);
  }
  memory_.arena_bytes = static_cast<std::int64_t>(emitter_.arena_->bytes);
  for (const auto& op : graph_.ops()) works_.push_back({op->all_layers, op->text(), 0});
  std::vector<ArenaRequest> requests;
  std::map<int, std::int64_t> workspace;  // of each call
  for (const Emitter::SlotState& slot : emitter_.slots_) {
    const auto bytes = static_cast<std::int64_t>(slot.bytes);
    requests.push_back({.bytes = slot.bytes, .first = slot.first, .last = slot.last});
    if (slot.is_workspace) {
      std::int64_t& call_bytes = workspace[slot.first] += bytes;
      memory_.workspace_bytes = std::max(memory_.workspace_bytes, call_bytes);
    }
    const bool kept = slot.first < emitter_.forward_calls_ && slot.last >= emitter_.forward_calls_;
    if (!kept || slot.outlives_step || !graph_.training()) continue;
    memory_.kept_bytes += bytes;
    const int op = emitter_.call_ops_[static_cast<std::size_t>(slot.first)];
    works_[static_cast<std::size_t>(op)].kept_bytes += bytes;
  }
  memory_.lower_bound_bytes = static_cast<std::int64_t>(arena_lower_bound(requests));
}

bool StepPlan::is_current() const {
  if (threads_ != num_threads() || isa_ != static_cast<int>(current_isa())) return false;
  if (!graph_.is_valid()) return false;
  return std::all_of(held_.begin(), held_.end(), [](const Held& held) {
    const Variable::State& state = *held.parameter.state();
    return state.value.raw_data() == held.data &&
           (state.grad.defined() ? state.grad.raw_data() : nullptr) == held.gradient;
  });
}

// On the CPU all calls share one fork and join of the threads; other devices have a queue.
void StepPlan::run(const std::vector<PlanCall>& calls, WorkClock* clock,
                   const FunctionRef<void(const Variable&)>* ready) const {
  const auto all = [&] {
    if (clock == nullptr && ready == nullptr) {
      for (const PlanCall& call : calls) call.run(call.arguments);
      return;
    }
    if (clock != nullptr) clock->start();
    int op = -1;
    for (const PlanCall& call : calls) {
      if (call.op != op) {
        if (ready != nullptr) tell_ready(op, *ready);
        op = call.op;
        if (clock != nullptr) {
          clock->begin(static_cast<std::size_t>(op) < works_.size() ? &works_[op] : nullptr);
        }
      }
      call.run(call.arguments);
    }
    if (ready != nullptr) tell_ready(op, *ready);
    if (clock != nullptr) clock->begin(nullptr);
  };
  if (device().type == DeviceType::cpu) {
    parallel_region(all);
  } else {
    all();
  }
}

void StepPlan::prepare() { run(emitter_.prologue_calls_); }

void StepPlan::set_images(const Tensor& x) {
  CONVSCOPE_CHECK(x.shape() == input() && x.dtype() == DType::f32 && x.device() == device(), kName,
                  "expected images f32", input(), " on ", device().str(),
                  " because the plan was made for them, got ", x.str());
  emitter_.state_.images = x.raw_data();
}

void StepPlan::load_labels(const Tensor& labels) {
  CONVSCOPE_CHECK(labels.dtype() == DType::i32 && labels.shape() == labels_.shape(), kName,
                  "expected labels i32", labels_.shape(), ", got ", labels.str());
  if (labels.device().type ==
      DeviceType::cpu) {  // not checked on a device: kernels ignore invalid labels
    const std::int64_t classes = graph_.shape(logits_)[1];
    const std::int32_t* const from = labels.data<std::int32_t>();
    for (std::int64_t n = 0; n < labels.numel(); ++n) {
      CONVSCOPE_CHECK(from[n] >= 0 && from[n] < classes, kName, "expected labels in [0,", classes,
                      "), got ", from[n], " at index ", n);
    }
  }
  labels_.copy_from(labels);
}

void StepPlan::tell(WorkClock* forward, WorkClock* backward) {
  forward_clock_ = forward;
  backward_clock_ = backward;
}

void StepPlan::queue_forward() { run(emitter_.forward_, forward_clock_); }

void StepPlan::queue_forward(const Tensor& x, const Tensor& labels) {
  set_images(x);
  load_labels(labels);
  queue_forward();
}

double StepPlan::loss() const { return loss_.item(); }

double StepPlan::forward(const Tensor& x, const Tensor& labels) {
  queue_forward(x, labels);
  return loss();
}

Tensor StepPlan::infer(const Tensor& x) {
  set_images(x);
  queue_forward();
  return result_;
}

// Calls `ready` for each parameter whose gradient is complete after this operation.
void StepPlan::tell_ready(int op, FunctionRef<void(const Variable&)> ready) const {
  for (std::size_t i = 0; op >= 0 && i < emitter_.parameters_.size(); ++i) {
    if (emitter_.parameter_ops_[i] == op) ready(emitter_.parameters_[i]);
  }
}

void StepPlan::backward(FunctionRef<void(const Variable&)> ready) {
  for (const Variable& parameter : emitter_.parameters_) parameter.state()->grad_is_zero = false;
  run(emitter_.backward_, backward_clock_, &ready);
}

bool StepPlan::joins_update(const JoinedUpdate& update) const {
  const std::vector<Variable>& all = emitter_.parameters_;
  return emitter_.offers_.updates == all.size() && update.rows.size() == all.size() &&
         std::ranges::all_of(all, [&](const Variable& parameter) {
           return std::ranges::any_of(update.rows, [&](const JoinedRow& row) {
             return row.dw == parameter.state()->grad.raw_data() &&
                    row.w == parameter.value().raw_data();
           });
         });
}

bool StepPlan::wants_copies(JoinedUpdate& update) const {
  bool any = false;
  for (const auto& [weight, copy] : emitter_.copies_) {
    const auto row = std::ranges::find(update.rows, weight, &JoinedRow::w);
    if (row == update.rows.end() || row->copy.to != nullptr) return false;
    row->copy = copy;
    any = true;
  }
  return any;
}

void StepPlan::backward() {
  run(emitter_.backward_, backward_clock_);
  for (const Variable& parameter : emitter_.parameters_) parameter.state()->grad_is_zero = false;
}

std::int64_t StepPlan::correct() const { return static_cast<std::int64_t>(correct_.item()); }

// Times neighbouring calls. If the device supports recordings (CUDA graphs), the calls run many
// times in one recording, so that neither host time nor a single launch dominates.
double StepPlan::seconds_of(const std::vector<PlanCall>& calls, std::size_t first,
                            std::size_t last) const {
  constexpr int kRepeats = 20;
  const DeviceBackend& backend = backend_of(device());
  const int index = device().index;
  const auto all = [&] {
    for (std::size_t i = first; i < last; ++i) calls[i].run(calls[i].arguments);
  };
  if (backend.begin_recording == nullptr) {
    const auto start = std::chrono::steady_clock::now();
    all();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  all();
  backend.begin_recording(index);
  for (int i = 0; i < kRepeats; ++i) all();
  void* const recording = backend.end_recording(index);
  void* const begin = backend.make_mark(index);
  void* const end = backend.make_mark(index);
  for (int i = 0; i < 2; ++i) {  // the first time warms up
    backend.set_mark(index, begin);
    backend.replay(index, recording);
    backend.set_mark(index, end);
  }
  const double ms = backend.ms_between(index, begin, end);
  backend.free_mark(index, begin);
  backend.free_mark(index, end);
  backend.free_recording(index, recording);
  return 1e-3 * ms / kRepeats;
}

std::vector<StepPlan::OpTime> StepPlan::time_ops(const Tensor& x, const Tensor& labels) {
  set_images(x);
  if (graph_.has_loss()) load_labels(labels);
  std::vector<OpTime> out;
  for (const auto& op : graph_.ops()) out.push_back({.layer = op->layer, .text = op->text()});
  const auto time = [&](const std::vector<PlanCall>& calls, double OpTime::*into) {
    for (std::size_t first = 0; first < calls.size();) {
      std::size_t last = first + 1;
      while (last < calls.size() && calls[last].op == calls[first].op) ++last;
      // The last call of an inference only keeps the result alive; it is not part of an operation.
      const auto op = static_cast<std::size_t>(calls[first].op);
      if (op < out.size()) out[op].*into += seconds_of(calls, first, last);
      first = last;
    }
  };
  time(emitter_.forward_, &OpTime::forward_s);
  time(emitter_.backward_, &OpTime::backward_s);
  std::vector<OpTime> of_each_step;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!runs_once(graph_, *graph_.ops()[i])) of_each_step.push_back(out[i]);
  }
  return of_each_step;
}

std::vector<StepPlan::Line> StepPlan::lines() const {
  std::vector<Line> out;
  for (const auto& op : graph_.ops()) {
    out.push_back({.layer = op->layer,
                   .text = op->text(),
                   .shape = graph_.shape(op->output()),
                   .once = runs_once(graph_, *op),
                   .bytes = bytes_of(graph_, *op)});
    for (const RanKernel& kernel : op->kernels(graph_)) {
      if (kernel.direction == Direction::forward) out.back().flops += kernel.flops;
    }
  }
  std::ranges::stable_partition(out, [](const Line& line) { return !line.once; });
  return out;
}

std::string StepPlan::text() const {
  std::string out;
  for (const Line& line : lines()) {
    out += cat(line.layer, "  ", line.text, line.once ? " (once)" : "", "  ", line.shape, "\n");
  }
  return out;
}

std::vector<RanKernel> StepPlan::kernels() const {
  std::vector<RanKernel> out;
  for (const auto& op : graph_.ops()) {
    for (RanKernel& kernel : op->kernels(graph_)) out.push_back(std::move(kernel));
  }
  return out;
}

std::string StepPlan::why_not_recordable() const {
  for (const auto& op : graph_.ops()) {
    if (!op->is_recordable) return cat("'", op->layer, "' runs as ", op->text());
  }
  return "";
}

int StepPlan::conversions() const {
  int count = 0;
  for (const auto& op : graph_.ops()) count += op->conversions;
  return count;
}

}  // namespace convscope
