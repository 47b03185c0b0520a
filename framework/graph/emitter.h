// SPDX-License-Identifier: Apache-2.0
// emitter.h: takes the kernel calls of operations. An eager emitter runs each call at once. The
// emitter of a compiled step collects the calls.
//
// An operation names the tensors of a call, then the call:
//
//   const Tensor x = emitter.value(inputs[0]);
//   const Tensor y = emitter.value(output());
//   emitter.call([run = unary_kernel.get(emitter.device()), x, y] { run(UnaryOp::relu, x, y); });
//
// In a compiled step a tensor's memory is reserved from the first call that names the tensor to the
// last one; other tensors use the memory before and after. The emitter goes through the network
// twice. In the first pass tensors have a shape but no memory, and calls are only counted. An eager
// emitter goes through the backward pass without memory once, right after the forward pass, to
// learn which tensors the backward pass reads. It frees all others.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "framework/graph/graph.h"
#include "framework/memory/arena_plan.h"
#include "framework/ops/update_rule.h"
#include "framework/precision.h"

namespace convscope {

struct BatchGather;  // layers/plan/batch_gather.h

// One kernel call with its prepared arguments.
struct PlanCall {
  void (*run)(void* arguments) = nullptr;
  void* arguments = nullptr;
  int op = -1;  // index in Graph::ops()
};

// The index of the training step, read when a call runs. A recording (CUDA graph) runs without the
// host. Its steps read the index of its first step from device memory and add their position in the
// recording.
struct PlanClock {
  const std::int64_t* base = nullptr;  // null: the module's step
  std::int64_t offset = 0;
};

// What may change between two runs of the same calls. Calls read it when they run.
struct StepState {
  const void* images = nullptr;  // the address of Graph::input()
  PlanClock clock;
  const double* loss_scale = nullptr;    // a number in device memory; null: 1
  const BatchGather* gather = nullptr;   // null: images and labels are in place
  const JoinedUpdate* update = nullptr;  // the optimiser's update; null: the weights stay unchanged
  bool copies_are_there = false;         // whether rounded copies of the weights are valid
};

// What an operation can do for the step besides its own work.
struct StepOffers {
  bool gathers = false;  // the reader of the images can gather images and labels (BatchGather)
  // The number of parameters that the call which completes all gradients can update (JoinedUpdate).
  std::size_t updates = 0;
};

// A tensor of the step that is not a value of the graph: argmax indices, partial sums.
using Slot = int;
inline constexpr Slot kNoSlot = -1;

// What may be stored with a value: its fp16 operands (layers/dispatch/layout/half_operands.h),
// those of its gradient, and the mean and spread of its channels.
enum class Companion { operands, gradient_operands, moments };
struct CompanionSlot {
  Slot slot = kNoSlot;
  bool has_elements = false, has_bound = false;  // of operands: the fp16 numbers; an upper bound
};

class CONVSCOPE_API Emitter {
 public:
  const Graph& graph() const { return graph_; }
  Device device() const { return graph_.device(); }
  bool is_eager() const { return graph_.is_eager(); }
  // Returns whether no call runs, because this eager pass only learns which tensors the backward
  // pass reads. An operation may leave out what it does not name for reading.
  bool is_learning() const { return mode_ == Mode::eager_dry; }

  // Returns the tensor, read or written by the next call.
  Tensor value(ValueId value);
  // Returns the complete gradient of a value, to which all readers have added their part. The
  // operation may overwrite it.
  Tensor gradient(ValueId value);
  // The tensor to which the next call adds its part of the gradient of `value`; the first such call
  // assigns instead.
  struct Target {
    Tensor tensor;
    bool accumulate = false;
  };
  Target gradient_target(ValueId value);
  // Adds to a gradient by a kernel that can only assign. emit(dx) emits the call that assigns dx.
  template <class Emit>
  void assign_gradient(ValueId value, Emit&& emit) {
    const Target target = gradient_target(value);
    if (!target.accumulate) return emit(target.tensor);
    const Slot part = slot(target.tensor.shape(), target.tensor.dtype());
    emit(use(part));
    add_to_gradient(value, part);
  }
  // Adds `part` to the existing gradient of `value`.
  void add_to_gradient(ValueId value, Slot part);
  // Passes the gradient of `output` on to `value` unchanged, without a copy where possible.
  void pass_gradient(ValueId output, ValueId value);

  CompanionSlot& companion(ValueId value, Companion kind) {
    return state_of(graph_.owner(value)).companions[static_cast<std::size_t>(kind)];
  }

  Slot slot(const Shape& shape, DType dtype);
  // Returns a slot whose memory is reserved only between the first and last call that name it, also
  // in a prologue.
  Slot temporary(const Shape& shape, DType dtype);
  Tensor use(Slot slot);
  // Returns scratch memory for the next call, counted as workspace; null for 0 bytes.
  void* workspace(std::size_t bytes);
  const StepState* state() const { return &state_; }
  StepOffers& offers() { return offers_; }
  // A copy of the parameter `weight`, rounded for kernels by a joined update (JoinedRow::copy).
  // now() is called when the call runs; if it returns null, the kernel rounds the weight itself.
  // The memory is reserved for the whole step.
  struct CopyOfWeight {
    WeightCopy copy;
    const bool* is_there = nullptr;
    const void* now() const { return copy.to != nullptr && *is_there ? copy.to : nullptr; }
  };
  CopyOfWeight copy_of_weight(ValueId weight, DType operand_type, bool as_floats);

  // Emits a call. A call that is emitted in a prologue() runs when the weights change, not in each
  // step. The memory of slots that are named in a prologue is not reused. There are three
  // exceptions: temporary slots, workspace, and values of the graph that the step does not name
  // (such as a masked weight whose kept blocks are used instead).
  template <class F>
  void call(F&& body) {
    if (mode_ == Mode::eager) {
      body();
      workspaces_.clear();
      return;
    }
    if (mode_ == Mode::eager_dry) return;
    ++call_index_;
    if (mode_ == Mode::dry) return call_ops_.push_back(op_);
    using Body = std::decay_t<F>;
    auto* object = new Body(std::forward<F>(body));
    owned_.emplace_back(object, [](void* p) { delete static_cast<Body*>(p); });
    calls().push_back({[](void* p) { (*static_cast<Body*>(p))(); }, object, op_});
    if (overwrites_) overwrite_dead_memory();
  }
  // Emits a call that prepares an operand of the next call. Tensors that were named for the next
  // call stay reserved for it.
  template <class F>
  void call_before(F&& body) {
    call(std::forward<F>(body));
    if (mode_ == Mode::dry) keep_names();
  }
  template <class F>
  void prologue(F&& emit) {
    const bool before = std::exchange(in_prologue_, true);
    emit();
    in_prologue_ = before;
  }
  // Runs the calls of `emit` after the backward pass of all other operations. Used by operations
  // that emit no other backward calls, for results that only the update reads.
  void at_the_end(std::function<void()> emit) { deferred_.push_back({op_, std::move(emit)}); }

 private:
  friend class StepPlan;
  friend class EagerRun;
  enum class Mode { dry, record, eager, eager_dry };
  struct SlotState {
    Shape shape;
    DType dtype = DType::f32;
    std::size_t bytes = 0;
    int first = 1 << 30, last = -1;
    bool is_workspace = false;
    bool is_temporary = false;
    bool outlives_step = false;                 // read by the next step
    bool is_value = false;                      // of the graph: readers call value()
    bool in_prologue = false, in_step = false;  // where it is named
    std::size_t offset = 0;
    Tensor tensor = {};      // eager
    bool is_needed = false;  // eager: the backward pass reads it
  };
  struct ValueState {
    Slot slot = kNoSlot, gradient = kNoSlot;
    CompanionSlot companions[3];
    Tensor tensor = {};      // eager
    bool is_needed = false;  // eager
  };
  using Owned = std::unique_ptr<void, void (*)(void*)>;

  explicit Emitter(Graph& graph)
      : graph_(graph), mode_(graph.is_eager() ? Mode::eager : Mode::dry) {}
  void start_pass(bool dry, Ref<Storage> arena);
  void finish_dry_pass();
  void emit_deferred();
  void keep_names();  // the slots of the last call are named for the next call as well
  // For tests: after the last call that names memory, fills it with NaN. A call that reads it
  // without naming it then gives wrong results in every arrangement of the arena.
  void overwrite_dead_memory();
  Tensor outliving(Slot slot);
  void note_gradient(const Variable& parameter);
  Target parameter_gradient(const Variable& parameter);
  std::vector<PlanCall>& calls();
  ValueState& state_of(ValueId value) { return values_[static_cast<std::size_t>(value)]; }

  // ---- eager
  Tensor eager_value(ValueId value);
  Target eager_target(ValueId value);
  Tensor without_memory(const Shape& shape, DType dtype) const;
  void restart_eager();  // forgets the operation, but keeps the memory of the lists
  // Goes through the backward pass of `op` without memory, and frees the tensors that it does not
  // read.
  void keep_for_backward(Operation& op);

  Graph& graph_;
  Mode mode_;
  bool overwrites_ = false;
  bool in_prologue_ = false;
  bool in_backward_ = false;
  int call_index_ = 0;         // of the next call
  int op_ = 0;                 // the operation that emits
  std::vector<int> call_ops_;  // by call_index_: the operation of each call
  int forward_calls_ = 0;
  Ref<Storage> arena_;
  std::size_t arena_bytes_ = 0;
  std::vector<SlotState> slots_;
  std::size_t next_slot_ = 0;
  std::vector<ValueState> values_;
  StepState state_;
  StepOffers offers_;
  std::vector<std::pair<const void*, WeightCopy>> copies_;  // of the weight at this address
  std::vector<Variable> parameters_;                        // whose gradient the plan writes
  std::vector<int> parameter_ops_;                          // and the operation that writes it last
  std::vector<std::pair<int, std::function<void()>>> deferred_;  // operation and at_the_end()
  std::vector<Owned> owned_;
  std::vector<PlanCall> prologue_calls_, forward_, backward_;
  std::vector<Workspace> workspaces_;  // eager: of the next call
  Tensor output_gradient_;             // eager: undefined in the pass without memory
  GradientSink* sink_ = nullptr;       // eager: takes the gradients of the inputs
};

// Adds the gradient of `output` to that of `value`. The gradient of `output` does not change.
CONVSCOPE_API void copy_gradient(Emitter& emitter, ValueId output, ValueId value);

}  // namespace convscope
