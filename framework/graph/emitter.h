// SPDX-License-Identifier: Apache-2.0
// emitter.h: collects the kernel calls that operations emit.
//
// An operation names the tensors of a call, then the call:
//
//   const Tensor x = builder.value(inputs[0]);
//   const Tensor y = builder.value(output);
//   builder.call([run = unary_kernel.get(builder.device()), x, y] { run(UnaryOp::relu, x, y); });
//
// A tensor's memory is reserved from the first call that names the tensor to the last one; other
// tensors use the memory before and after. The builder goes through the network twice. In the first
// pass tensors have a shape but no memory, and calls are only counted.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "framework/memory/arena_plan.h"
#include "framework/ops/update_rule.h"
#include "framework/precision.h"
#include "layers/plan/batch_gather.h"
#include "layers/plan/piece_sums.h"
#include "framework/graph/graph.h"

namespace convscope {

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

// A tensor of the step that is not a value of the graph: argmax indices, partial sums.
using Slot = int;
inline constexpr Slot kNoSlot = -1;

class CONVSCOPE_API Emitter {
 public:
  const Graph& graph() const { return graph_; }
  bool training() const { return graph_.training(); }
  Device device() const { return graph_.device(); }
  // Returns the shape that users see: [N,C,H,W], whatever the layout of value().
  const Shape& shape(ValueId value) const { return graph_.shape(value); }
  bool wants_gradient(ValueId value) const { return graph_.wants_gradient(value); }
  // Returns whether the value and its gradient are stored as fp16/bf16 NHWC.
  bool in_half(ValueId value) const { return is_half(graph_.dtype(value)); }
  bool is_nhwc(ValueId value) const { return graph_.layout(value) == ActivationLayout::nhwc; }

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
    emit_accumulate(value, part);
  }
  // Adds `part` to the existing gradient of `value`.
  void add_to_gradient(ValueId value, Slot part) { emit_accumulate(value, part); }
  // Passes the gradient of `output` on to `value` unchanged, without a copy where possible.
  void pass_gradient(ValueId output, ValueId value);

  // The fp16 operands of an f32 image: a block of bytes (dispatch/layout/half_operands.h). The
  // producer of the image may write the block; it then stores an upper bound of the magnitudes
  // after the scale. Otherwise the first reader emits the call that makes the block. `operands()`
  // names the block for the next call.
  struct Operands {
    Slot block = kNoSlot;
    bool has_elements = false, has_bound = false;  // without fp16 numbers: only scale and bound
  };
  const Operands& operands_of(ValueId value) { return state(graph_.owner(value)).operands; }
  const Operands& gradient_operands_of(ValueId value) {
    return state(graph_.owner(value)).gradient_operands;
  }
  Tensor operands(ValueId value) { return use(operands_of(value).block); }
  Tensor gradient_operands(ValueId value) { return use(gradient_operands_of(value).block); }
  void make_operands(ValueId value);
  void make_gradient_operands(ValueId value);
  // Returns the block for the next call to write.
  Tensor operands_target(ValueId value, bool elements, bool bound);
  Tensor gradient_operands_target(ValueId value);

  // Marks the value as rounded to the type that its only reader multiplies, fp16 or bf16.
  void set_rounded(ValueId value) { state(graph_.owner(value)).is_rounded = true; }
  bool is_rounded(ValueId value) { return state(graph_.owner(value)).is_rounded; }

  // Returns mean and spread of the channels of a value, one set for each of `parts` sets of pixels:
  // f32 [parts,4,stored channels] (framework/cuda/channel_moments.cuh). The producer's next call
  // writes moments_target(). A reader's next call reads moments(), which is undefined if the
  // producer computes none.
  Tensor moments_target(ValueId value, std::int64_t parts);
  Tensor moments(ValueId value);

  // Returns where to write the gradient of a parameter. The first layer that uses the parameter
  // assigns it, later layers add to it.
  Target parameter_gradient(const Variable& parameter);

  Slot slot(const Shape& shape, DType dtype);
  // Returns a slot whose memory is reserved only between the first and last call that name it, also
  // in a prologue.
  Slot temporary(const Shape& shape, DType dtype);
  Tensor use(Slot slot);
  // Returns scratch memory for the next call, counted as workspace; null for 0 bytes.
  void* workspace(std::size_t bytes);
  // Returns the address of a pointer to the step's images, for calls that need no copy. The pointer
  // is read when the call runs.
  const void* const* images();
  Tensor labels();
  const PlanClock* clock() const { return &clock_; }
  // Returns the address of a pointer to the loss scale in device memory. The pointer is read when
  // the call runs; null means a scale of 1.
  const double* const* loss_scale() const { return &loss_scale_; }
  // Returns what the loss operation writes: the mean loss f32 [1], or the number of correct images
  // i32 [1]. Both stay until the end of the step.
  Tensor loss();
  Tensor correct();

  // Emits a call. A call that is emitted in a prologue() runs when the weights change, not in each
  // step. The memory of slots that are named in a prologue is not reused. There are three
  // exceptions: temporary slots, workspace, and values of the graph that the step does not name
  // (such as a masked weight whose kept blocks are used instead).
  template <class F>
  void call(F&& body) {
    ++call_index_;
    if (dry_) return call_ops_.push_back(op_);
    using Body = std::decay_t<F>;
    auto* object = new Body(std::forward<F>(body));
    owned_.emplace_back(object, [](void* p) { delete static_cast<Body*>(p); });
    calls().push_back({[](void* p) { (*static_cast<Body*>(p))(); }, object, op_});
  }
  // Declares that the last call's kernel first waits for the kernel before it, and only then lets
  // the next kernel start (framework/cuda/launch.cuh). So when a later kernel begins, all kernels
  // before this one have ended.
  void last_call_waits_first() { ++calls_that_wait_first_; }
  int calls_that_wait_first() const { return calls_that_wait_first_; }  // so far
  // Runs the calls of `emit` after the backward pass of all other operations. Used by operations
  // that emit no other backward calls, for results that only the update reads.
  void at_the_end(std::function<void()> emit) { deferred_.push_back({op_, std::move(emit)}); }
  // Declares, in a backward pass, that the operation's at_the_end() call can also add the partial
  // sums of another operation. The next operation then calls hand_over() with its `sums`. The
  // pieces are in the slot `pieces`, which the at_the_end() call must name. All targets are
  // gradients of parameters.
  void take_sums() { takes_sums_ = true; }
  bool takes_sums() const { return takes_sums_; }
  void hand_over(Slot pieces, const PieceSums& sums) {
    takes_sums_ = false;
    handed_over_ = {pieces, sums};
  }
  PieceSums handed_over();
  // Returns the address of a pointer to the source of images and labels. The pointer is read when
  // the call runs; null means that images and labels are in place. The only reader of the images
  // calls take_gather() in its forward pass if it can gather them.
  const BatchGather* const* gather() const { return &gather_; }
  void take_gather() { takes_gather_ = true; }
  // Returns the address of a pointer to the optimiser's update of the step. The call that completes
  // all gradients can apply the update: it reads the pointer when it runs; null means that the
  // weights stay unchanged. joins_update() declares how many parameters the call updates.
  const JoinedUpdate* const* update() const { return &update_; }
  void joins_update(std::size_t parameters) { joins_update_ = parameters == parameters_.size(); }
  // A copy of the parameter `weight`, rounded for kernels by a joined update (JoinedRow::copy).
  // now() is called when the call runs; if it returns null, the kernel rounds the weight itself.
  // The memory is reserved for the whole step.
  struct CopyOfWeight {
    WeightCopy copy;
    const bool* is_there = nullptr;
    const void* now() const { return copy.to != nullptr && *is_there ? copy.to : nullptr; }
  };
  CopyOfWeight copy_of_weight(ValueId weight, DType operand_type, bool as_floats);
  template <class F>
  void prologue(F&& emit) {
    const bool before = std::exchange(in_prologue_, true);
    emit();
    in_prologue_ = before;
  }

 private:
  friend class StepPlan;
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
  };
  struct ValueState {
    Slot slot = kNoSlot, gradient = kNoSlot;
    bool has_gradient = false;
    bool is_rounded = false;
    Operands operands, gradient_operands;
    Slot moments = kNoSlot;
  };
  using Owned = std::unique_ptr<void, void (*)(void*)>;

  explicit Emitter(Graph& graph) : graph_(graph) {}
  void start_pass(bool dry, Ref<Storage> arena);
  void finish_dry_pass();
  void emit_deferred();
  Tensor new_operands(Operands& to, ValueId value, bool elements, bool bound);
  void emit_accumulate(ValueId value, Slot part);
  Tensor kept(Slot& slot, DType dtype);
  Tensor outliving(Slot slot);
  void note_gradient(const Variable& parameter);
  std::vector<PlanCall>& calls();
  ValueState& state(ValueId value) { return values_[static_cast<std::size_t>(value)]; }

  Graph& graph_;
  bool dry_ = true;
  bool in_prologue_ = false;
  bool in_backward_ = false;
  int call_index_ = 0;  // of the next call
  int calls_that_wait_first_ = 0;
  int op_ = 0;                 // the operation that emits
  std::vector<int> call_ops_;  // by call_index_: the operation of each call
  int forward_calls_ = 0;
  Ref<Storage> arena_;
  std::size_t arena_bytes_ = 0;
  std::vector<SlotState> slots_;
  std::size_t next_slot_ = 0;
  std::vector<ValueState> values_;
  Slot labels_ = kNoSlot, loss_ = kNoSlot, correct_ = kNoSlot;
  const void* images_now_ = nullptr;
  PlanClock clock_;
  const double* loss_scale_ = nullptr;
  const BatchGather* gather_ = nullptr;
  bool takes_gather_ = false, takes_sums_ = false, joins_update_ = false;
  std::pair<Slot, PieceSums> handed_over_{kNoSlot, {}};
  const JoinedUpdate* update_ = nullptr;
  std::vector<std::pair<const void*, WeightCopy>> copies_;  // of the weight at this address
  bool copies_are_there_ = false;
  std::vector<Variable> parameters_;  // whose gradient the plan writes
  std::vector<int> parameter_ops_;    // and the operation that writes it last
  std::vector<std::pair<int, std::function<void()>>> deferred_;  // operation and at_the_end()
  std::vector<Owned> owned_;
  std::vector<PlanCall> prologue_calls_, forward_, backward_;
};

}  // namespace convscope
