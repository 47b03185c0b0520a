// SPDX-License-Identifier: Apache-2.0
// emitter.cpp: takes the kernel calls of operations: runs them, or collects them for a compiled
// step.
#include "framework/graph/emitter.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "framework/ops/accumulate.h"

namespace convscope {

std::vector<PlanCall>& Emitter::calls() {
  return in_prologue_ ? prologue_calls_ : in_backward_ ? backward_ : forward_;
}

void Emitter::start_pass(bool dry, Ref<Storage> arena) {
  mode_ = dry ? Mode::dry : Mode::record;
  arena_ = std::move(arena);
  overwrites_ =
      device().type == DeviceType::cpu && std::getenv("CONVSCOPE_OVERWRITE_DEAD_MEMORY") != nullptr;
  in_backward_ = in_prologue_ = false;
  call_index_ = 0;
  next_slot_ = 0;
  parameters_.clear();
  parameter_ops_.clear();
  offers_ = {};
  copies_.clear();
  values_.assign(static_cast<std::size_t>(graph_.value_count()), {});
}

void Emitter::emit_deferred() {
  for (const auto& [op, emit] : deferred_) {
    op_ = op;
    emit();
  }
  deferred_.clear();
}

void Emitter::overwrite_dead_memory() {
  // The caller reads the result after the last call.
  if (call_index_ == static_cast<int>(call_ops_.size())) return;
  std::vector<Tensor> dead;
  for (const SlotState& slot : slots_) {
    if (slot.last != call_index_ - 1 || slot.bytes == 0) continue;
    dead.push_back(
        Tensor::view(arena_, slot.offset, {static_cast<std::int64_t>(slot.bytes)}, DType::u8));
  }
  const auto body = [dead = std::move(dead)] {
    for (const Tensor& memory : dead) {
      std::memset(memory.raw_data(), 0xff, static_cast<std::size_t>(memory.numel()));
    }
  };
  using Body = std::decay_t<decltype(body)>;
  auto* object = new Body(body);
  owned_.emplace_back(object, [](void* p) { delete static_cast<Body*>(p); });
  calls().push_back({[](void* p) { (*static_cast<Body*>(p))(); }, object, op_});
}

void Emitter::finish_dry_pass() {
  std::vector<ArenaRequest> requests;
  requests.reserve(slots_.size());
  for (SlotState& slot : slots_) {
    const bool stays = slot.in_prologue && !slot.is_temporary && (slot.in_step || !slot.is_value);
    if (stays) slot.first = 0, slot.last = 1 << 30;
    requests.push_back({.bytes = slot.bytes, .first = slot.first, .last = slot.last});
  }
  const ArenaPlan plan = plan_arena(requests);
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].offset = plan.offsets[i];
  arena_bytes_ = plan.bytes;
}

void Emitter::keep_names() {
  for (SlotState& slot : slots_) {
    if (slot.last == call_index_ - 1) slot.last = call_index_;
  }
}

Slot Emitter::slot(const Shape& shape, DType dtype) {
  const Slot id = static_cast<Slot>(next_slot_++);
  if (mode_ != Mode::record) {
    if (slots_.empty()) slots_.reserve(8);
    const auto bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
    slots_.push_back({.shape = shape, .dtype = dtype, .bytes = bytes});
  }
  return id;
}

Slot Emitter::temporary(const Shape& shape, DType dtype) {
  const Slot id = slot(shape, dtype);
  slots_[static_cast<std::size_t>(id)].is_temporary = true;
  return id;
}

Tensor Emitter::use(Slot slot) {
  SlotState& state = slots_.at(static_cast<std::size_t>(slot));
  if (is_eager()) {
    state.is_needed = true;
    if (mode_ == Mode::eager_dry && !state.tensor.defined()) {
      return without_memory(state.shape, state.dtype);
    }
    if (!state.tensor.defined()) state.tensor = Tensor::empty(state.shape, state.dtype, device());
    return state.tensor;
  }
  if (mode_ == Mode::dry) {
    state.first = std::min(state.first, call_index_);
    state.last = std::max(state.last, call_index_);
    (in_prologue_ ? state.in_prologue : state.in_step) = true;
  }
  return Tensor::view(arena_, mode_ == Mode::dry ? 0 : state.offset, state.shape, state.dtype);
}

void* Emitter::workspace(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (mode_ == Mode::eager_dry) return nullptr;
  if (mode_ == Mode::eager) return workspaces_.emplace_back(device(), bytes).data();
  const Slot id = temporary({static_cast<std::int64_t>(bytes)}, DType::u8);
  slots_[static_cast<std::size_t>(id)].is_workspace = true;
  return use(id).raw_data();
}

Tensor Emitter::value(ValueId value) {
  if (is_eager()) return eager_value(value);
  if (const Variable* const parameter = graph_.parameter_of(graph_.owner(value))) {
    return parameter->value().reshape(graph_.shape(value));
  }
  ValueState& own = state_of(graph_.owner(value));
  const Shape stored = graph_.stored_shape(value);
  if (own.slot == kNoSlot) {
    own.slot = slot(stored, graph_.dtype(value));
    if (mode_ == Mode::dry) slots_.back().is_value = true;
    if (graph_.owner(value) == Graph::input()) {  // an operation reads the images as a tensor
      const Tensor to = use(own.slot);
      call_before(
          [copy = backend_of(device()).copy_within, index = device().index, from = &state_, to] {
            copy(index, to.raw_data(), from->images, static_cast<std::size_t>(to.size_bytes()));
          });
    }
  }
  if (graph_.is_kept(graph_.owner(value))) return outliving(own.slot).reshape(stored);
  return use(own.slot).reshape(stored);
}

// The next step reads this tensor while the kernels of that step already write, so no other tensor
// of a step may reuse its memory.
Tensor Emitter::outliving(Slot id) {
  const Tensor out = use(id);
  SlotState& state = slots_[static_cast<std::size_t>(id)];
  state.outlives_step = true;
  state.first = 0;
  state.last = 1 << 30;
  return out;
}

Emitter::CopyOfWeight Emitter::copy_of_weight(ValueId weight, DType operand_type, bool as_floats) {
  const Variable* const parameter = graph_.parameter_of(graph_.owner(weight));
  if (!graph_.training() || !is_half(operand_type) || parameter == nullptr) return {};
  const Tensor to =
      outliving(slot({graph_.shape(weight).numel()}, as_floats ? DType::f32 : operand_type));
  const WeightCopy copy{.to = to.raw_data(), .operand_type = operand_type, .as_floats = as_floats};
  copies_.emplace_back(parameter->value().raw_data(), copy);
  return {.copy = copy, .is_there = &state_.copies_are_there};
}

Tensor Emitter::gradient(ValueId value) {
  if (is_eager()) {
    return output_gradient_.defined() ? output_gradient_
                                      : without_memory(graph_.shape(value), graph_.dtype(value));
  }
  if (const Variable* const parameter = graph_.parameter_of(graph_.owner(value))) {
    note_gradient(*parameter);
    return parameter->state()->grad.reshape(graph_.shape(value));
  }
  const ValueState& own = state_of(graph_.owner(value));
  CONVSCOPE_CHECK(own.gradient != kNoSlot, "plan", "expected a gradient of value ", value,
                  " of shape ", graph_.shape(value), " because an operation reads it, got none");
  return use(own.gradient).reshape(graph_.stored_shape(value));
}

Emitter::Target Emitter::gradient_target(ValueId value) {
  if (is_eager()) return eager_target(value);
  if (const Variable* const parameter = graph_.parameter_of(graph_.owner(value))) {
    const Target target = parameter_gradient(*parameter);
    return {target.tensor.reshape(graph_.shape(value)), target.accumulate};
  }
  ValueState& own = state_of(graph_.owner(value));
  const bool accumulate = own.gradient != kNoSlot;
  const Shape stored = graph_.stored_shape(value);
  if (!accumulate) {
    own.gradient = slot(stored, is_half(graph_.dtype(value)) ? graph_.dtype(value) : DType::f32);
  }
  return {use(own.gradient).reshape(stored), accumulate};
}

void Emitter::add_to_gradient(ValueId value, Slot part) {
  const Tensor to = is_eager() ? eager_target(value).tensor : gradient(value);
  const Tensor from = use(part).reshape(to.shape());
  call([run = accumulate_kernel.get(device()), to, from] { run(to, from); });
}

void Emitter::pass_gradient(ValueId output, ValueId value) {
  if (mode_ == Mode::eager_dry) return;
  if (mode_ == Mode::eager) {
    return sink_->add(value - 1, gradient(output).reshape(graph_.shape(value)));
  }
  const Slot from = state_of(graph_.owner(output)).gradient;
  if (graph_.parameter_of(graph_.owner(value)) != nullptr) {
    return copy_gradient(*this, output, value);
  }
  ValueState& own = state_of(graph_.owner(value));
  if (own.gradient == kNoSlot) {
    own.gradient = from;
  } else {
    add_to_gradient(value, from);
  }
}

// Returns where to write the gradient of a parameter. The first operation that uses the parameter
// assigns it, later operations add to it.
Emitter::Target Emitter::parameter_gradient(const Variable& parameter) {
  Variable::State& state = *parameter.state();
  if (!state.grad.defined()) {
    state.grad = Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device());
  }
  const bool again = std::any_of(parameters_.begin(), parameters_.end(),
                                 [&](const Variable& p) { return p.state() == parameter.state(); });
  if (!again) parameters_.push_back(parameter);
  note_gradient(parameter);
  return {state.grad, again};
}

// Records that the current operation is the last one that writes this gradient.
void Emitter::note_gradient(const Variable& parameter) {
  parameter_ops_.resize(parameters_.size(), -1);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].state() == parameter.state()) parameter_ops_[i] = op_;
  }
}

void copy_gradient(Emitter& emitter, ValueId output, ValueId value) {
  const Emitter::Target to = emitter.gradient_target(value);
  emitter.call([add = accumulate_kernel.get(emitter.device()),
                dy = emitter.gradient(output).reshape(to.tensor.shape()), to] {
    if (to.accumulate) {
      add(to.tensor, dy);
    } else {
      to.tensor.copy_from(dy);
    }
  });
}

// ---- eager: the inputs are values 1, 2, .. of the graph

Tensor Emitter::eager_value(ValueId value) {
  const ValueId owner = graph_.owner(value);
  ValueState& own = state_of(owner);
  own.is_needed = true;
  if (!own.tensor.defined()) {
    own.tensor = Tensor::empty(graph_.shape(owner), graph_.dtype(owner), device());
  }
  return owner == value ? own.tensor : own.tensor.reshape(graph_.shape(value));
}

Emitter::Target Emitter::eager_target(ValueId value) {
  if (mode_ == Mode::eager_dry) {
    return {without_memory(graph_.shape(value), graph_.dtype(value)), false};
  }
  GradientSink::Target target = sink_->target(value - 1);
  return {std::move(target.tensor), target.accumulate};
}

Tensor Emitter::without_memory(const Shape& shape, DType dtype) const {
  return Tensor::view(arena_, 0, shape, dtype);
}

void Emitter::restart_eager() {
  mode_ = Mode::eager;
  in_prologue_ = false;
  slots_.clear();
  next_slot_ = 0;
  values_.clear();
  copies_.clear();
  deferred_.clear();
  workspaces_.clear();
  output_gradient_ = Tensor();
  sink_ = nullptr;
}

void Emitter::keep_for_backward(Operation& op) {
  for (ValueState& value : values_) value.is_needed = false;
  for (SlotState& slot : slots_) slot.is_needed = false;
  const std::size_t slots = slots_.size();
  mode_ = Mode::eager_dry;
  if (!arena_ || !(arena_->device == device())) {
    arena_ = make_ref<Storage>(device(), std::size_t{0});
  }
  op.backward(*this);
  emit_deferred();
  mode_ = Mode::eager;
  slots_.resize(slots);
  next_slot_ = slots;
  for (ValueState& value : values_) {
    if (!value.is_needed) value.tensor = Tensor();
  }
  for (SlotState& slot : slots_) {
    if (!slot.is_needed) slot.tensor = Tensor();
  }
}

}  // namespace convscope
