// SPDX-License-Identifier: Apache-2.0
// graph.h: the static graph of a network: which operation reads which values, for inputs of one
// shape. A StepPlan (layers/plan/step_plan.h) compiles it to a list of kernel calls.
//
// A graph is recorded by running Module::forward() with symbolic variables, which have a shape but
// no numbers: apply() then adds the operation to the graph instead of running it (apply.h). After
// that, passes fuse operations, replace chains by faster implementations and choose layouts
// (layers/plan/pipeline.cpp). An operation belongs to one graph and one mode.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "framework/autograd/variable.h"
#include "framework/graph/operation.h"

namespace convscope {

// `training` runs forward, loss and gradients. `inference` runs the forward pass up to the logits,
// `evaluation` up to the loss, both with dropout and batch norm in eval mode.
enum class PlanMode { training, inference, evaluation };

// Thrown while a graph is recorded: the network cannot be compiled, and runs eagerly.
struct NotCompiled : std::exception {
  explicit NotCompiled(std::string reason) : why(std::move(reason)) {}
  const char* what() const noexcept override { return why.c_str(); }
  std::string why;
};

class CONVSCOPE_API Graph {
 public:
  // Creates the graph of a step whose input() has this shape. With `eager` it has one operation,
  // which runs at once.
  Graph(const Shape& input, PlanMode mode, Device device = {}, bool eager = false);

  PlanMode mode() const { return mode_; }
  Device device() const { return device_; }  // where the parameters live and everything runs
  // Returns whether gradients are computed.
  bool training() const { return mode_ == PlanMode::training; }
  bool is_eager() const { return eager_; }
  bool has_loss() const { return mode_ != PlanMode::inference; }
  static constexpr ValueId input() { return 0; }
  // Returns shape, type and layout. The types are those of TensorDesc. The gradient of a value has
  // the same type, except that only fp16 and bf16 images have such gradients.
  const TensorDesc& desc(ValueId value) const { return values_.at(index(value)).desc; }
  const Shape& shape(ValueId value) const { return desc(value).shape; }
  DType dtype(ValueId value) const { return desc(value).dtype; }
  ActivationLayout layout(ValueId value) const { return desc(value).layout; }
  Shape stored_shape(ValueId value) const { return desc(value).stored_shape(); }
  void set_layout(ValueId value, ActivationLayout layout) {
    values_.at(index(value)).desc.layout = layout;
  }
  void set_stored(ValueId value, DType dtype, ActivationLayout layout) {
    values_.at(index(value)).desc.dtype = dtype;
    set_layout(value, layout);
  }
  // Adds a copy of the value in another layout. With `shared`, copy and value use the same memory.
  ValueId add_stored(ValueId value, ActivationLayout layout, bool shared, DType dtype = DType::f32);
  // Adds a value for a pass, which then sets the value as an output of an operation.
  ValueId add_value(const TensorDesc& desc, bool wants_gradient = false);
  // Returns false for values that depend only on the images, because their gradient is not needed.
  bool wants_gradient(ValueId value) const { return values_.at(index(value)).wants_gradient; }
  // Marks a value that the next step still reads; its memory is used for nothing else.
  void keep(ValueId value) { values_.at(index(value)).is_kept = true; }
  bool is_kept(ValueId value) const { return values_.at(index(value)).is_kept; }
  // Marks a value that is stored rounded to the type that its only reader multiplies.
  void set_rounded(ValueId value) { values_.at(index(owner(value))).is_rounded = true; }
  bool is_rounded(ValueId value) const { return values_.at(index(owner(value))).is_rounded; }

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

  // Adds an operation and returns its value. The value has a gradient if an input has one.
  ValueId add(std::unique_ptr<Operation> op, std::vector<ValueId> inputs);
  // Returns the symbolic variable of a value, for Module::forward(), and the value of a variable: a
  // leaf is a parameter.
  Variable variable(ValueId value);
  ValueId value_of(const Variable& variable);
  // Removes all operations after the first `count` ones: they are replaced by one that runs
  // eagerly.
  void truncate(std::size_t count) { ops_.resize(count); }
  // Removes operations whose results nothing reads: outputs of a module that the network ignores.
  void remove_unread();
  // Throws NotCompiled with the name of the layer: the network runs eagerly.
  [[noreturn]] void refuse(const std::string& why) const;
  // Records why the next step cannot be compiled and runs eagerly. Later steps are compiled.
  void not_yet(const std::string& why);
  const std::string& wait() const { return wait_; }  // "": the next step is compiled

  // Names the layer that is being recorded, so that operations know it. `graph` may be null.
  class CONVSCOPE_API Scope {
   public:
    Scope(Graph* graph, const std::string& name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph* graph_;
    std::string before_;
  };

  void set_result(ValueId value) { result_ = value; }
  ValueId result() const { return result_; }
  void fuse(std::string_view pass);  // applies the fusions that are registered for this pass
  // Replaces `chain`, operations of which each reads the result of the one before, by `joined`, at
  // the position of the last one. `joined` gets the input of the first one, then the other inputs
  // of all, and the outputs of the last one. Returns the replaced operations.
  std::vector<std::unique_ptr<Operation>> replace(const std::vector<Operation*>& chain,
                                                  std::unique_ptr<Operation> joined);

  // Makes `value` share the memory of `with`, as a view does.
  void share(ValueId value, ValueId with) { values_.at(index(value)).owner = owner(with); }
  bool is_shared(const Operation& op) const {  // a view, without memory
    return !op.inputs.empty() && owner(op.output()) == owner(op.inputs[0]);
  }

  // Returns the operations in the order in which they run, for passes.
  std::vector<std::unique_ptr<Operation>>& ops() { return ops_; }
  const std::vector<std::unique_ptr<Operation>>& ops() const { return ops_; }
  Operation* producer(ValueId value) const;     // null: an input or a parameter
  Operation* only_reader(ValueId value) const;  // null: none, several, or the result
  int readers(ValueId value) const;  // number of reading operations; the result counts as one
  // How readers use a value: as an f32 image, as fp16 operands, or both.
  struct ReadAs {
    bool numbers = false, operands = false;
  };
  ReadAs read_as(ValueId value) const;
  // Returns whether the producer of a value reads the value's gradient only as fp16 operands.
  bool gradient_is_read_as_operands(ValueId value) const;
  // Returns the value whose memory this value shares; the value itself if it owns its memory.
  ValueId owner(ValueId value) const { return values_.at(index(value)).owner; }
  int value_count() const { return static_cast<int>(values_.size()); }

 private:
  friend class EagerRun;
  struct Value {
    TensorDesc desc;
    bool wants_gradient = false;
    ValueId owner = kNoValue;
    bool parameters_only = false;
    bool is_kept = false, is_rounded = false;
    Variable parameter = {};  // undefined: not a parameter
  };
  static std::size_t index(ValueId value) { return static_cast<std::size_t>(value); }

  PlanMode mode_;
  Device device_;
  bool eager_;
  std::vector<Value> values_;
  std::vector<std::unique_ptr<Operation>> ops_;
  ValueId result_ = kNoValue;
  std::string wait_, scope_;
  std::vector<std::function<bool()>> conditions_;
};

// Two operations of these kinds become one if the second is the only reader of the first's value
// and fuse() returns true. fuse() tells `first` to do the work of `next`; or join() makes the
// operation that does the work of both, and fuse() only decides. The graph then appends the other
// inputs of `next` to those of the operation and removes `next`.
struct Fusion {
  const char* first;
  const char* next;
  bool (*fuse)(const Graph& graph, Operation& first, Operation& next);
  std::unique_ptr<Operation> (*join)(std::unique_ptr<Operation> first) = nullptr;
};
CONVSCOPE_API bool register_fusions(std::string_view pass, const std::vector<Fusion>& fusions);

}  // namespace convscope
