// SPDX-License-Identifier: Apache-2.0
// emitter.cpp: collects the kernel calls that operations emit.
#include "framework/graph/emitter.h"

#include <algorithm>

#include "framework/ops/accumulate.h"
#include "layers/dispatch/layout/half_operands.h"

namespace convscope {

std::vector<PlanCall>& Emitter::calls() {
  return in_prologue_ ? prologue_calls_ : in_backward_ ? backward_ : forward_;
}

void Emitter::start_pass(bool dry, Ref<Storage> arena) {
  dry_ = dry;
  arena_ = std::move(arena);
  in_backward_ = in_prologue_ = false;
  call_index_ = calls_that_wait_first_ = 0;
  next_slot_ = 0;
  labels_ = loss_ = correct_ = kNoSlot;
  parameters_.clear();
  parameter_ops_.clear();
  takes_gather_ = takes_sums_ = joins_update_ = false;
  handed_over_ = {kNoSlot, {}};
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

PieceSums Emitter::handed_over() {
  PieceSums out = handed_over_.second;
  if (handed_over_.first != kNoSlot) out.pieces = use(handed_over_.first).data<float>();
  return out;
}

void Emitter::finish_dry_pass() {
  std::vector<ArenaRequest> requests;
  requests.reserve(slots_.size());
  for (const SlotState& slot : slots_) {
    const bool stays = slot.in_prologue && !slot.is_temporary && (slot.in_step || !slot.is_value);
    requests.push_back({.bytes = slot.bytes,
                        .first = stays ? 0 : slot.first,
                        .last = stays ? 1 << 30 : slot.last});
  }
  const ArenaPlan plan = plan_arena(requests);
  for (std::size_t i = 0; i < slots_.size(); ++i) slots_[i].offset = plan.offsets[i];
  arena_bytes_ = plan.bytes;
}

Slot Emitter::slot(const Shape& shape, DType dtype) {
  const Slot id = static_cast<Slot>(next_slot_++);
  if (dry_) {
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
  if (dry_) {
    state.first = std::min(state.first, call_index_);
    state.last = std::max(state.last, call_index_);
    (in_prologue_ ? state.in_prologue : state.in_step) = true;
  }
  return Tensor::view(arena_, dry_ ? 0 : state.offset, state.shape, state.dtype);
}

void* Emitter::workspace(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const Slot id = temporary({static_cast<std::int64_t>(bytes)}, DType::u8);
  slots_[static_cast<std::size_t>(id)].is_workspace = true;
  return use(id).raw_data();
}

Tensor Emitter::value(ValueId value) {
  if (const Variable* const parameter = graph_.parameter_of(graph_.owner(value))) {
    return parameter->value().reshape(shape(value));
  }
  ValueState& own = state(graph_.owner(value));
  if (own.slot == kNoSlot) {
    own.slot = slot(graph_.stored_shape(value), graph_.dtype(value));
    if (dry_) slots_.back().is_value = true;
    if (graph_.owner(value) == Graph::input()) {  // an operation reads the images as a tensor
      const Tensor to = use(own.slot);
      call([copy = backend_of(device()).copy_within, index = device().index, from = images(), to] {
        copy(index, to.raw_data(), *from, static_cast<std::size_t>(to.size_bytes()));
      });
    }
  }
  return use(own.slot).reshape(graph_.stored_shape(value));
}

const void* const* Emitter::images() { return &images_now_; }

Tensor Emitter::labels() {
  if (labels_ == kNoSlot) labels_ = slot({shape(Graph::input())[0]}, DType::i32);
  return use(labels_);
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

Tensor Emitter::kept(Slot& id, DType dtype) {
  if (id == kNoSlot) id = slot({1}, dtype);
  return outliving(id);
}

Emitter::CopyOfWeight Emitter::copy_of_weight(ValueId weight, DType operand_type,
                                                      bool as_floats) {
  const Variable* const parameter = graph_.parameter_of(graph_.owner(weight));
  if (!training() || !is_half(operand_type) || parameter == nullptr) return {};
  const Tensor to = outliving(slot({shape(weight).numel()}, as_floats ? DType::f32 : operand_type));
  const WeightCopy copy{.to = to.raw_data(), .operand_type = operand_type, .as_floats = as_floats};
  copies_.emplace_back(parameter->value().raw_data(), copy);
  return {.copy = copy, .is_there = &copies_are_there_};
}

Tensor Emitter::loss() { return kept(loss_, DType::f32); }
Tensor Emitter::correct() { return kept(correct_, DType::i32); }

Tensor Emitter::gradient(ValueId value) {
  if (const Variable* const parameter = graph_.parameter_of(graph_.owner(value))) {
    note_gradient(*parameter);
    return parameter->state()->grad.reshape(shape(value));
  }
  const ValueState& own = state(graph_.owner(value));
  CONVSCOPE_CHECK(own.gradient != kNoSlot, "plan", "expected a gradient of value ", value,
                  " of shape ", shape(value), " because an operation reads it, got none");
  return use(own.gradient).reshape(graph_.stored_shape(value));
}

Emitter::Target Emitter::gradient_target(ValueId value) {
  if (const Variable* const parameter = graph_.parameter_of(graph_.owner(value))) {
    const Target target = parameter_gradient(*parameter);
    return {target.tensor.reshape(shape(value)), target.accumulate};
  }
  ValueState& own = state(graph_.owner(value));
  const bool accumulate = own.gradient != kNoSlot;
  const Shape stored = graph_.stored_shape(value);
  if (!accumulate) own.gradient = slot(stored, in_half(value) ? graph_.dtype(value) : DType::f32);
  return {use(own.gradient).reshape(stored), accumulate};
}

void Emitter::emit_accumulate(ValueId value, Slot part) {
  const Tensor to = gradient(value);
  const Tensor from = use(part).reshape(to.shape());
  call([run = accumulate_kernel.get(device()), to, from] { run(to, from); });
}

void Emitter::pass_gradient(ValueId output, ValueId value) {
  const Slot from = state(graph_.owner(output)).gradient;
  if (graph_.parameter_of(graph_.owner(value)) != nullptr) {
    const Target to = gradient_target(value);
    const Tensor dy = use(from).reshape(shape(value));
    call([add = accumulate_kernel.get(device()), to, dy] {
      if (to.accumulate) {
        add(to.tensor, dy);
      } else {
        to.tensor.copy_from(dy);
      }
    });
    return;
  }
  ValueState& own = state(graph_.owner(value));
  if (own.gradient == kNoSlot) {
    own.gradient = from;
  } else {
    emit_accumulate(value, from);
  }
}

Tensor Emitter::new_operands(Operands& to, ValueId value, bool elements, bool bound) {
  const std::size_t bytes =
      elements ? half_operands_bytes(graph_.stored_shape(value).numel()) : kHalfOperandsHead;
  to = {.block = slot({static_cast<std::int64_t>(bytes)}, DType::u8),
        .has_elements = elements,
        .has_bound = bound};
  return use(to.block);
}

Tensor Emitter::operands_target(ValueId value, bool elements, bool bound) {
  return new_operands(state(graph_.owner(value)).operands, value, elements, bound);
}

Tensor Emitter::gradient_operands_target(ValueId value) {
  return new_operands(state(graph_.owner(value)).gradient_operands, value, true, false);
}

void Emitter::make_operands(ValueId value) {
  if (operands_of(value).has_elements) return;
  const Tensor x = this->value(value);
  call([run = pack_half_operands_kernel.get(device()), x,
        to = operands_target(value, true, false)] { run(x, to.raw_data()); });
}

void Emitter::make_gradient_operands(ValueId value) {
  if (gradient_operands_of(value).has_elements) return;
  const Tensor dy = gradient(value);
  call([run = pack_half_operands_kernel.get(device()), dy, to = gradient_operands_target(value)] {
    run(dy, to.raw_data());
  });
}

Tensor Emitter::moments_target(ValueId value, std::int64_t parts) {
  const std::int64_t lanes = graph_.stored_shape(value)[4];
  return use(state(value).moments = slot({parts, 4, lanes}, DType::f32));
}

Tensor Emitter::moments(ValueId value) {
  const Slot slot = state(value).moments;
  return slot == kNoSlot ? Tensor() : use(slot);
}

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

}  // namespace convscope
