// SPDX-License-Identifier: Apache-2.0
// graph.h: the static graph of a network: which operation reads which values, for inputs of
// one shape. A StepPlan (step_plan.h) compiles it to a list of kernel calls.
//
// Every layer adds its operations itself, in Module::describe(), which mirrors forward():
//
//   ValueId Pool2d::describe(Graph& graph, ValueId x) {
//     return describe_operation(graph, *this, make_ref<MaxPool>(window_), {x});
//   }
//
// Then operations absorb the next one where one kernel does both (a convolution absorbs a following
// ReLU), and rewrites replace longer chains by faster implementations. An operation belongs to one
// graph and one mode: training or inference.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/autograd/variable.h"
#include "framework/activation_layout.h"

namespace convscope {

enum class Direction;  // layers/conv2d/problem.h

class Emitter;
class Graph;

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

// `training` runs forward, loss and gradients. `inference` runs the forward pass up to the logits,
// `evaluation` up to the loss, both with dropout and batch norm in eval mode.
enum class PlanMode { training, inference, evaluation };

// The kernel of a layer in one direction: the name of an algorithm, or of a chain that contains the
// layer. `dynamic` layers have no describe() and run as a dynamic graph inside the step.
struct RanKernel {
  std::string layer;
  Direction direction;
  std::string kernel;
  bool dynamic = false;
  ActivationLayout layout = ActivationLayout::nchw;  // of its images
};

// Returns layout_ms() of an operation that works in all layouts and takes the same time in each.
inline std::optional<double> same_in_both(ActivationLayout layout) {
  if (layout == ActivationLayout::nchw16c_y) return std::nullopt;
  return 0.0;
}

// One operation: what it reads and writes, and how it emits its kernel calls.
class CONVSCOPE_API PlanOp {
 public:
  PlanOp() = default;
  virtual ~PlanOp();
  PlanOp(const PlanOp&) = delete;
  PlanOp& operator=(const PlanOp&) = delete;

  virtual std::string text() const = 0;  // "conv2d winograd_f4x3 + relu", for `explain`
  // Absorbs `next`, the only reader of this operation's value. If it returns true, `next` is
  // removed from the graph, and the other inputs of `next` are appended to the inputs of this
  // operation. `fuse` then tries the next operation.
  virtual bool absorb(const Graph& graph, PlanOp& next);
  // Emits the calls of the forward or backward pass. Each function is called twice and must make
  // the same decisions: the first time to learn how long each tensor lives, the second time with
  // addresses.
  virtual void forward(Emitter& builder) = 0;
  virtual void backward(Emitter& builder) = 0;

  // Returns how many layout copies one step makes, in both directions; known after emission.
  virtual int conversions() const { return 0; }
  // Returns the milliseconds that the operation takes per step if its images are stored in
  // `layout`, without the work that takes the same time in all layouts. Returns nothing if the
  // operation does not support the layout. plan_layouts.cpp calls it, then set_layout().
  virtual std::optional<double> layout_ms(const Graph& graph, ActivationLayout layout) const;
  virtual void set_layout(const Graph&, ActivationLayout) {}
  // Returns the type, fp16 or bf16, in which the operation needs its images, in NHWC. f32 means
  // that the operation accepts any type. Called by half_layouts.cpp.
  virtual DType preferred_half_type() const { return DType::f32; }
  // Returns whether the operation reads its images in any layout; then no copy is inserted before
  // the operation.
  virtual bool reads_any_layout() const { return false; }
  // Returns whether the operation reads this input as [N,C,H,W], whatever the layout of its other
  // inputs.
  virtual bool reads_plain(std::size_t) const { return false; }

  // Returns the kernels of each layer with a weight that the operation computes, one for each
  // direction.
  virtual std::vector<RanKernel> kernels(const Graph& graph) const;

  // Returns whether the device can record the operation's calls as a CUDA graph. It cannot record
  // calls that do more than queue kernels.
  virtual bool is_recordable() const { return true; }

  // Returns whether the operation has other kernels for f32 NHWC images, which may be faster. If
  // this holds for no operation, plan_layouts.cpp leaves the layouts as they are.
  virtual bool may_gain_nhwc(const Graph&) const { return false; }
  // Returns which fp16 operands (dispatch/layout/half_operands.h) the operation would read in NHWC.
  // Operands are made once for all readers. would_write_operands() returns whether the operation
  // would itself write its result and the gradient of its image as fp16 operands. plan_layouts.cpp
  // adds the cost of the passes that make all other operands.
  struct OperandsRead {
    bool image = false, gradient = false;  // `gradient` of its output
  };
  virtual OperandsRead would_read_operands(const Graph&) const { return {}; }
  virtual bool would_write_operands(const Graph&) const { return false; }
  // Returns whether the operation reads this input, or the gradient of its output, only as fp16
  // operands.
  virtual bool reads_operands(const Graph&, std::size_t) const { return false; }
  virtual bool reads_gradient_operands(const Graph&) const { return false; }
  // Returns fp16 or bf16 if the operation reads this f32 input only as an operand and rounds it to
  // this type; f32 if it does not round. The producer may then round the value
  // (Emitter::set_rounded).
  virtual DType rounds_input(std::size_t) const { return DType::f32; }

  std::string layer;                    // "c1"; the first one of fused layers
  std::vector<std::string> all_layers;  // layers that it computes; empty: no single layer
  std::vector<ValueId> inputs;          //
  ValueId output = kNoValue;
};

class CONVSCOPE_API Graph {
 public:
  Graph(const Shape& input, PlanMode mode, Device device = {});

  PlanMode mode() const { return mode_; }
  Device device() const { return device_; }  // where the parameters live and everything runs
  bool training() const { return mode_ == PlanMode::training; }
  bool has_loss() const { return mode_ != PlanMode::inference; }
  static constexpr ValueId input() { return 0; }
  const Shape& shape(ValueId value) const { return values_.at(index(value)).shape; }
  // Returns the stored type. u8 and i8 are codes of a quantised value, always in NCHW16c
  // (quant/integer/). f16 and bf16 are NHWC images (half_layouts.cpp), whose gradient has the same
  // type. All other values are f32.
  DType dtype(ValueId value) const { return values_.at(index(value)).dtype; }
  // Returns the layout and shape in memory; shape() is always the shape that users see.
  ActivationLayout layout(ValueId value) const { return values_.at(index(value)).layout; }
  void set_layout(ValueId value, ActivationLayout layout) {
    values_.at(index(value)).layout = layout;
  }
  Shape stored_shape(ValueId value) const {
    return convscope::stored_shape(shape(value), layout(value));
  }
  void set_stored(ValueId value, DType dtype, ActivationLayout layout) {
    values_.at(index(value)).dtype = dtype;
    set_layout(value, layout);
  }
  // Adds a copy of the value in another layout. With `shared`, copy and value use the same memory.
  ValueId add_stored(ValueId value, ActivationLayout layout, bool shared, DType dtype = DType::f32);
  // Adds a value for a rewrite, which then sets the value as the `output` of an operation.
  ValueId add_value(const Shape& shape, DType dtype, ActivationLayout layout);
  // Returns false for values that depend only on the images, because their gradient is not needed.
  bool wants_gradient(ValueId value) const { return values_.at(index(value)).wants_gradient; }

  // Returns the value of a parameter, always the same one. Its memory and gradient are those of the
  // parameter. If a weight has a mask or a quantiser, operations read the masked or quantised
  // value.
  ValueId parameter(const Variable& parameter);
  // Returns null when `value` is not a parameter.
  const Variable* parameter_of(ValueId value) const;
  // Returns whether the value depends on parameters only. Inference then computes it once, until
  // the parameters change.
  bool is_of_parameters(ValueId value) const { return values_.at(index(value)).parameters_only; }
  // Adds a condition on what a layer may change between steps. The plan is valid while holds() is
  // true.
  void valid_while(std::function<bool()> holds) { conditions_.push_back(std::move(holds)); }
  bool is_valid() const;

  // Adds an operation; its value has a gradient if one of its inputs or parameters has one.
  ValueId add(std::unique_ptr<PlanOp> op, std::vector<ValueId> inputs, const Shape& output,
              bool has_parameters = false);
  // Adds a view of the same elements in another shape, at no cost.
  ValueId reshape(ValueId x, const Shape& shape);
  // Records why the network cannot be compiled: it runs as a dynamic graph. Returns kNoValue.
  ValueId refuse(const std::string& why);
  const std::string& refusal() const { return refusal_; }  // "": none
  // Records why the next step cannot be compiled and runs as a dynamic graph. Later steps are
  // compiled.
  void not_yet(const std::string& why);
  const std::string& wait() const { return wait_; }  // "": the next step is compiled

  // Names the layer that is being described, so that operations know it.
  class CONVSCOPE_API Scope {
   public:
    Scope(Graph& graph, const std::string& name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph& graph_;
    std::string before_;
  };

  void set_result(ValueId value) { result_ = value; }
  ValueId result() const { return result_; }
  void fuse();

  // Makes `value` share the memory of `with`, as for a reshape.
  void share(ValueId value, ValueId with) { values_.at(index(value)).owner = owner(with); }
  bool is_shared(const PlanOp& op) const {  // a reshape, without memory
    return !op.inputs.empty() && owner(op.output) == owner(op.inputs[0]);
  }

  // Returns the operations in the order in which they run, for rewrites.
  std::vector<std::unique_ptr<PlanOp>>& ops() { return ops_; }
  const std::vector<std::unique_ptr<PlanOp>>& ops() const { return ops_; }
  int readers(ValueId value) const;  // number of reading operations; the result counts as one
  // How readers use a value: as an f32 image, as fp16 operands, or both.
  struct ReadAs {
    bool numbers = false, operands = false;
  };
  ReadAs read_as(ValueId value) const;
  // Returns whether the producer of a value reads the value's gradient only as fp16 operands.
  bool gradient_is_read_as_operands(ValueId value) const;
  // Returns the value whose memory this value shares; the value itself if it owns its memory.
  ValueId owner(ValueId value) const;
  int value_count() const { return static_cast<int>(values_.size()); }

 private:
  struct Value {
    Shape shape;
    bool wants_gradient = false;
    ValueId owner = kNoValue;
    bool parameters_only = false;
    Variable parameter = {};  // undefined: not a parameter
    ActivationLayout layout = ActivationLayout::nchw;
    DType dtype = DType::f32;
  };
  static std::size_t index(ValueId value) { return static_cast<std::size_t>(value); }

  PlanMode mode_;
  Device device_;
  std::vector<Value> values_;
  std::vector<std::unique_ptr<PlanOp>> ops_;
  ValueId result_ = kNoValue;
  std::string refusal_, wait_, scope_;
  std::vector<std::function<bool()>> conditions_;
};

// Replaces chains of operations by faster ones; registered in the file of the implementation
// (conv2d/batch_lanes/cpu/lanes_chain.cpp). Rewrites run after fuse(), in the order of their names.
struct PlanRewrite {
  std::string name;
  DeviceType device = DeviceType::cpu;  // of the graphs that it rewrites
  bool goes_first = false;              // before the others
  void (*run)(Graph& graph) = nullptr;
};
CONVSCOPE_API bool register_plan_rewrite(const PlanRewrite& rewrite);
CONVSCOPE_API const std::vector<PlanRewrite>& plan_rewrites();

}  // namespace convscope
