// SPDX-License-Identifier: Apache-2.0
// plan_graph.h: a network written down before it runs: which operation reads which values, for
// inputs of one shape. From it a StepPlan (step_plan.h) makes a list of kernel calls.
//
// Every layer adds its operations itself, in Module::describe(), which mirrors forward():
//
//   ValueId Pool2d::describe(PlanGraph& graph, ValueId x) {
//     return describe_operation(graph, *this, make_ref<MaxPool>(window_), {x});
//   }
//
// Then operations take over what the next one does, where a kernel exists that does both (a
// convolution absorbs the ReLU behind it), and rewrites that know a better form of a longer chain
// replace it. An operation belongs to one graph and one mode: training or inference.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/autograd/variable.h"
#include "layers/dispatch/activation_layout.h"

namespace convscope {

enum class Direction;  // layers/conv2d/problem.h

class PlanBuilder;
class PlanGraph;

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

// forward, loss and gradients; or forward alone, with dropout and batch norm in eval mode, up to
// the logits or up to the loss.
enum class PlanMode { training, inference, evaluation };

// What computes a layer in one direction: the name of a card, or of a chain that the layer is part
// of. dynamic: the layer has no planned form and runs as a dynamic graph inside the step.
struct RanKernel {
  std::string layer;
  Direction direction;
  std::string kernel;
  bool dynamic = false;
  ActivationLayout layout = ActivationLayout::nchw;  // of its images
};

// What an operation's layout_ms() says that works in all layouts and takes as long in each.
inline std::optional<double> same_in_both(ActivationLayout layout) {
  if (layout == ActivationLayout::blocked_y) return std::nullopt;
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
  // `next` is the only reader of this operation's value: take over its work. True: done, and `next`
  // is taken out of the graph; its other inputs are appended to this one's. `fuse` calls it again
  // with the operation behind.
  virtual bool absorb(const PlanGraph& graph, PlanOp& next);
  // Emit the calls. Both run twice, with the same decisions each time: the first time to learn how
  // long each tensor lives, the second time with its address.
  virtual void forward(PlanBuilder& builder) = 0;
  virtual void backward(PlanBuilder& builder) = 0;

  // Copies of values into another layout or back, in one step; known once the calls are emitted.
  virtual int conversions() const { return 0; }
  // Milliseconds of one step when the images that it reads and writes lie in `layout`, as far as
  // layouts differ; nothing: it does not work on such images. plan_layouts.cpp asks, and then says
  // which one it is.
  virtual std::optional<double> layout_ms(const PlanGraph& graph, ActivationLayout layout) const;
  virtual void set_layout(const PlanGraph&, ActivationLayout) {}
  // The half type that it wants its images in, with their channels last; f32: it is content with
  // what its inputs are. half_layouts.cpp asks.
  virtual DType wants_halves() const { return DType::f32; }
  // Reads its images in whatever layout they lie: no copy is put in front of it.
  virtual bool reads_any_layout() const { return false; }
  // Reads this one of its inputs as [N,C,H,W], in whatever layout the others lie.
  virtual bool reads_plain(std::size_t) const { return false; }

  // Of each layer with a weight that this operation computes, one for each direction that runs.
  virtual std::vector<RanKernel> kernels(const PlanGraph& graph) const;

  // False: its calls do more than queue kernels, so a device cannot record them.
  virtual bool is_recordable() const { return true; }

  // It has other kernels for f32 images with their channels last, which may take less time. Where
  // no operation has, plan_layouts.cpp asks nobody.
  virtual bool may_gain_channels_last(const PlanGraph&) const { return false; }
  // With its channels last: of what it would read factors of products, which are made once for all
  // that read them (dispatch/layout/half_factors.h), and not f32 because that is faster; and
  // whether it would write those of its result and of the gradient of its image. plan_layouts.cpp
  // counts the passes that make what nobody writes.
  struct FactorsRead {
    bool image = false, gradient = false;  // of its output
  };
  virtual FactorsRead would_read_factors(const PlanGraph&) const { return {}; }
  virtual bool would_write_factors(const PlanGraph&) const { return false; }
  // Reads this one of its inputs as factors alone; the same of the gradient of its output.
  virtual bool reads_factors(const PlanGraph&, std::size_t) const { return false; }
  virtual bool reads_gradient_factors(const PlanGraph&) const { return false; }
  // The half type to which it rounds this one of its inputs, an f32 that it reads as factors alone;
  // f32: it does not. Who writes the value may round it then (PlanBuilder::set_rounded).
  virtual DType rounds_input(std::size_t) const { return DType::f32; }

  std::string layer;                    // "c1"; of several fused ones the first
  std::vector<std::string> all_layers;  // of them; empty: its work is no layer's own
  std::vector<ValueId> inputs;          //
  ValueId output = kNoValue;
};

class CONVSCOPE_API PlanGraph {
 public:
  PlanGraph(const Shape& input, PlanMode mode, Device device = {});

  PlanMode mode() const { return mode_; }
  Device device() const { return device_; }  // where the parameters live and everything runs
  bool training() const { return mode_ == PlanMode::training; }
  bool has_loss() const { return mode_ != PlanMode::inference; }
  static constexpr ValueId input() { return 0; }
  const Shape& shape(ValueId value) const { return values_.at(index(value)).shape; }
  // f32; u8 and i8, the codes of a quantised value, always in blocks (quant/integer/); or f16 and
  // bf16, images with their channels last (half_layouts.cpp), whose gradient is of that type too.
  DType dtype(ValueId value) const { return values_.at(index(value)).dtype; }
  // How it lies in memory, and its shape there; shape() is always that which users see.
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
  // The same value once more, in another layout; `shared`: in the same memory.
  ValueId add_stored(ValueId value, ActivationLayout layout, bool shared, DType dtype = DType::f32);
  // A value that a rewrite adds; its producer is an operation with this output.
  ValueId add_value(const Shape& shape, DType dtype, ActivationLayout layout);
  // False for what depends on the images alone: nobody asks for its gradient.
  bool wants_gradient(ValueId value) const { return values_.at(index(value)).wants_gradient; }

  // A parameter as a value that operations read: its memory is the parameter's own, and its
  // gradient is that of the parameter. A weight that passes through a mask or a quantiser is the
  // value behind them. The same parameter gives the same value.
  ValueId parameter(const Variable& parameter);
  // Null when `value` is none.
  const Variable* parameter_of(ValueId value) const;
  // Computed from parameters alone: an inference computes it once for each state of the weights.
  bool is_of_parameters(ValueId value) const { return values_.at(index(value)).of_parameters; }
  // The plan is valid as long as `holds` says so: for what a layer may change between steps.
  void valid_while(std::function<bool()> holds) { conditions_.push_back(std::move(holds)); }
  bool is_valid() const;

  // Adds an operation; its value wants a gradient when one of its inputs does or it has parameters
  // that want one.
  ValueId add(std::unique_ptr<PlanOp> op, std::vector<ValueId> inputs, const Shape& output,
              bool has_parameters = false);
  // The same elements in another shape; costs nothing.
  ValueId reshape(ValueId x, const Shape& shape);
  // "This cannot be planned, because ...": the step then runs as a dynamic graph. Returns kNoValue.
  ValueId refuse(const std::string& why);
  const std::string& refusal() const { return refusal_; }  // "": none
  // "The next step is another one, because ...": it runs as a dynamic graph, later ones as planned.
  void not_yet(const std::string& why);
  const std::string& wait() const { return wait_; }  // "": the next step is as planned

  // Layers that contain layers say whose turn it is, so that operations know their layer's name.
  class CONVSCOPE_API Scope {
   public:
    Scope(PlanGraph& graph, const std::string& name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PlanGraph& graph_;
    std::string before_;
  };

  void set_result(ValueId value) { result_ = value; }
  ValueId result() const { return result_; }
  void fuse();

  // `value` has its elements where `with` has them: what a reshape gives.
  void share(ValueId value, ValueId with) { values_.at(index(value)).owner = owner(with); }
  bool is_shared(const PlanOp& op) const {  // a reshape: no memory of its own
    return !op.inputs.empty() && owner(op.output) == owner(op.inputs[0]);
  }

  // For rewrites: the operations in the order in which they run.
  std::vector<std::unique_ptr<PlanOp>>& ops() { return ops_; }
  const std::vector<std::unique_ptr<PlanOp>>& ops() const { return ops_; }
  int readers(ValueId value) const;  // operations that read it; the result counts as read once
  // As what its memory is read.
  struct ReadAs {
    bool numbers = false, factors = false;
  };
  ReadAs read_as(ValueId value) const;
  // Its gradient is read as factors alone, by the operation that gives the value.
  bool gradient_is_read_as_factors(ValueId value) const;
  // The value whose memory this one shares; itself when it owns it.
  ValueId owner(ValueId value) const;
  int value_count() const { return static_cast<int>(values_.size()); }

 private:
  struct Value {
    Shape shape;
    bool wants_gradient = false;
    ValueId owner = kNoValue;
    bool of_parameters = false;
    Variable parameter = {};  // undefined: no parameter
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

// Replaces chains of operations by better ones; registered where the better form is written
// (conv2d/batch_lanes/cpu/lanes_chain.cpp). They run after fuse(), in the order of their names.
struct PlanRewrite {
  std::string name;
  DeviceType device = DeviceType::cpu;  // of the graphs that it looks at
  bool goes_first = false;              // in front of the others
  void (*run)(PlanGraph& graph) = nullptr;
};
CONVSCOPE_API bool register_plan_rewrite(const PlanRewrite& rewrite);
CONVSCOPE_API const std::vector<PlanRewrite>& plan_rewrites();

}  // namespace convscope
